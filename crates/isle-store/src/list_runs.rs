//! Listing runs, newest first, in pages: the cursor is the last run that was scanned.

use std::collections::HashMap;

use rusqlite::{ToSql, params};

use crate::error::StoreError;
use crate::listing::{Listing, MOST_SCANNED, Page};
use crate::records::{RunFilter, RunRow, RunTotals};
use crate::runs::{COLUMNS, run_row, seq_of};
use crate::store::Store;

impl Store {
    /// Runs, newest first. The cursor is the id of a run.
    pub fn runs(&self, filter: &RunFilter) -> Result<Page<RunRow, String>, StoreError> {
        let filter = filter.clone();
        self.listed(move |listing| listing.runs(&filter))
    }
}

impl Listing<'_> {
    /// Runs, newest first. The cursor is the id of a run.
    pub fn runs(&self, filter: &RunFilter) -> Result<Page<RunRow, String>, StoreError> {
        let before = match &filter.before {
            // The scan of `default` covers runs of other namespaces, and its cursor may be one of them.
            Some(id) => {
                let whose = filter.namespace.as_deref().filter(|namespace| *namespace != "default");
                seq_of(self.connection, id, whose)?
            }
            None => i64::MAX,
        };
        // Jobs have a separate index; other runs of a tenant are found by the index of its namespace, and
        // those of `default` by a scan from the newest. The conditions are those of the partial indexes.
        let is_default = filter.namespace.as_deref() == Some("default");
        let (condition, namespace): (&str, Option<&dyn ToSql>) =
            match (filter.kind.as_deref(), &filter.namespace) {
                (Some("job"), Some(namespace)) => ("AND kind = 'job' AND namespace = ?3", Some(namespace)),
                (_, Some(namespace)) if !is_default => {
                    ("AND namespace = ?3 AND namespace <> 'default'", Some(namespace))
                }
                (_, _) => ("", None),
            };
        let text = format!(
            "SELECT seq, id, sandbox_name, state, kind, namespace FROM runs WHERE seq < ?1 {condition}
             ORDER BY seq DESC LIMIT ?2"
        );
        let mut scan = self.connection.prepare_cached(&text)?;
        let mut values: Vec<&dyn ToSql> = vec![&before, &MOST_SCANNED];
        values.extend(namespace);
        let mut found = scan.query(values.as_slice())?;
        let mut whole =
            self.connection.prepare_cached(&format!("SELECT {COLUMNS} FROM runs WHERE seq = ?1"))?;
        let (mut rows, mut scanned, mut last) = (Vec::new(), 0, None);
        while let Some(row) = found.next()? {
            let seq: i64 = row.get(0)?;
            scanned += 1;
            if scanned >= MOST_SCANNED {
                last = Some(row.get(1)?);
            }
            let is = |column: usize, wanted: &Option<String>| -> rusqlite::Result<bool> {
                let Some(wanted) = wanted else { return Ok(true) };
                Ok(row.get_ref(column)?.as_str_or_null().unwrap_or_default() == Some(wanted))
            };
            if !is(2, &filter.sandbox)?
                || !is(3, &filter.state)?
                || !is(4, &filter.kind)?
                || !is(5, &filter.namespace)?
            {
                continue;
            }
            let mut shown = whole.query(params![seq])?;
            if let Some(row) = shown.next()? {
                rows.push(run_row(row)?);
            }
            if rows.len() >= filter.limit as usize {
                last = rows.last().map(|row: &RunRow| row.id.clone());
                break;
            }
        }
        Ok(Page { rows, next: last })
    }

    /// Totals of the newest runs of a namespace, by sandbox id: as many as one page scans.
    pub fn run_totals(&self, namespace: &str) -> Result<HashMap<String, RunTotals>, StoreError> {
        let condition = match namespace {
            // Without an index: the newest runs of all namespaces are scanned.
            "default" => "seq > (SELECT coalesce(max(seq), 0) - ?2 FROM runs) AND namespace = ?1",
            _ => "namespace = ?1 AND namespace <> 'default'",
        };
        let text = format!(
            "SELECT sandbox_id, coalesce(cpu_us, 0), coalesce(peak_rss_kib, 0), stdout_bytes + stderr_bytes
             FROM runs WHERE {condition} ORDER BY seq DESC LIMIT ?2"
        );
        let mut statement = self.connection.prepare_cached(&text)?;
        let mut found = statement.query(params![namespace, MOST_SCANNED])?;
        let mut totals: HashMap<String, RunTotals> = HashMap::new();
        while let Some(row) = found.next()? {
            let number = |column: usize| -> rusqlite::Result<u64> {
                Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
            };
            let sum = totals.entry(row.get(0)?).or_default();
            sum.runs += 1;
            sum.cpu_us += number(1)?;
            sum.peak_rss_kib = sum.peak_rss_kib.max(number(2)?);
            sum.output_bytes += number(3)?;
        }
        Ok(totals)
    }

    /// How many of the newest jobs of a namespace are in each of its sandboxes.
    pub fn job_counts(&self, namespace: &str) -> Result<HashMap<String, usize>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT sandbox_name FROM runs WHERE kind = 'job' AND namespace = ?1 AND sandbox_name IS NOT NULL
             ORDER BY seq DESC LIMIT ?2",
        )?;
        let mut found = statement.query(params![namespace, MOST_SCANNED])?;
        let mut counts: HashMap<String, usize> = HashMap::new();
        while let Some(row) = found.next()? {
            *counts.entry(row.get(0)?).or_default() += 1;
        }
        Ok(counts)
    }
}
