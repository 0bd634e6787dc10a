//! Listing the chain, newest first. Listings show what is stored, whether or not it verifies.

use rusqlite::{Row, ToSql, params};
use serde_json::Value;

use crate::audit::append::sql_seq;
use crate::audit::encode::hexadecimal;
use crate::audit::{AuditFilter, AuditRow};
use crate::error::StoreError;
use crate::listing::{Listing, MOST_SCANNED, Page};
use crate::store::Store;

const MOST: u32 = 500;
const COLUMNS: &str = "seq, time_ms, actor, door, action, sandbox, run, detail, prev_hash, hash, namespace";

impl Store {
    /// Audit rows, newest first.
    pub fn audit(&self, filter: &AuditFilter) -> Result<Page<AuditRow>, StoreError> {
        let filter = filter.clone();
        self.listed(move |listing| listing.audit(&filter))
    }
}

impl Listing<'_> {
    /// Audit rows, newest first.
    pub fn audit(&self, filter: &AuditFilter) -> Result<Page<AuditRow>, StoreError> {
        if !(1..=MOST).contains(&filter.limit) {
            return Err(StoreError::LimitOutOfRange { limit: filter.limit, max: MOST });
        }
        let before = filter.before.map_or(i64::MAX, sql_seq);
        // Rows of a tenant are found by the index of its namespace; those of `default`, which has none, by a
        // scan from the newest. Only the filtered columns are read first, the whole row when it matches.
        let (condition, namespace): (&str, Option<&dyn ToSql>) = match filter.namespace.as_deref() {
            Some("default") | None => ("", None),
            Some(_) => ("AND namespace = ?3", Some(&filter.namespace)),
        };
        let text = format!(
            "SELECT seq, action, sandbox, namespace FROM audit WHERE seq < ?1 {condition}
             ORDER BY seq DESC LIMIT ?2"
        );
        let of_default = filter.namespace.as_deref() == Some("default");
        let mut scan = self.connection.prepare_cached(&text)?;
        let mut values: Vec<&dyn ToSql> = vec![&before, &MOST_SCANNED];
        values.extend(namespace);
        let mut found = scan.query(values.as_slice())?;
        let mut whole =
            self.connection.prepare_cached(&format!("SELECT {COLUMNS} FROM audit WHERE seq = ?1"))?;
        let (mut rows, mut scanned, mut last) = (Vec::new(), 0, None);
        while let Some(row) = found.next()? {
            let seq: i64 = row.get(0)?;
            (scanned, last) = (scanned + 1, Some(seq));
            let is = |column: usize, wanted: &Option<String>| -> rusqlite::Result<bool> {
                let Some(wanted) = wanted else { return Ok(true) };
                Ok(row.get_ref(column)?.as_str_or_null().unwrap_or_default() == Some(wanted))
            };
            let namespace_is = !of_default
                || row.get_ref(3)?.as_str_or_null().unwrap_or_default().is_none_or(|name| name == "default");
            if !namespace_is || !is(1, &filter.action)? || !is(2, &filter.sandbox)? {
                continue;
            }
            rows.push(whole.query_row(params![seq], audit_row)?);
            if rows.len() >= filter.limit as usize {
                break;
            }
        }
        let more = scanned >= MOST_SCANNED || rows.len() >= filter.limit as usize;
        let next = last.filter(|seq| more && *seq > 1).and_then(|seq| u64::try_from(seq).ok());
        Ok(Page { rows, next })
    }
}

fn audit_row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    let detail: String = row.get(7)?;
    let hash = |column: usize| row.get::<_, Vec<u8>>(column).map(|bytes| hexadecimal(&bytes));
    Ok(AuditRow {
        seq: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
        time_ms: row.get(1)?,
        actor: row.get(2)?,
        door: row.get(3)?,
        action: row.get(4)?,
        sandbox: row.get(5)?,
        run: row.get(6)?,
        // A tampered detail must not hide the row.
        detail: serde_json::from_str(&detail).unwrap_or(Value::String(detail)),
        prev_hash: hash(8)?,
        hash: hash(9)?,
        namespace: row.get(10)?,
    })
}
