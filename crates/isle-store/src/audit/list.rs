//! Reading the chain, newest first. Lists show what is stored, whether or not it verifies.

use rusqlite::{Row, ToSql};
use serde_json::Value;

use crate::audit::append::place;
use crate::audit::encode::hexadecimal;
use crate::audit::{AuditFilter, AuditRow};
use crate::error::StoreError;
use crate::store::Store;

const MOST: u32 = 500;

impl Store {
    /// Entries on record, newest first.
    pub fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
        if !(1..=MOST).contains(&filter.limit) {
            return Err(StoreError::LimitOutOfRange { limit: filter.limit, max: MOST });
        }
        let before = filter.before.map(place);
        let mut conditions = vec!["1"];
        let mut values: Vec<(&str, &dyn ToSql)> = vec![(":limit", &filter.limit)];
        if let Some(namespace) = &filter.namespace {
            conditions.push("coalesce(namespace, 'default') = :namespace");
            values.push((":namespace", namespace));
        }
        if let Some(action) = &filter.action {
            conditions.push("action = :action");
            values.push((":action", action));
        }
        if let Some(sandbox) = &filter.sandbox {
            conditions.push("sandbox = :sandbox");
            values.push((":sandbox", sandbox));
        }
        if let Some(before) = &before {
            conditions.push("seq < :before");
            values.push((":before", before));
        }
        let text = format!(
            "SELECT seq, time_ms, actor, door, action, sandbox, run, detail, prev_hash, hash, namespace
             FROM audit WHERE {} ORDER BY seq DESC LIMIT :limit",
            conditions.join(" AND ")
        );
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&text)?;
            let rows = statement.query_map(values.as_slice(), audit_row)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
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
