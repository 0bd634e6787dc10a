//! Live syncs: the next daemon resumes a stored one, for as long as its sandbox exists.

use rusqlite::{Connection, params};
use serde_json::Value;

use crate::audit::{AuditEntry, append};
use crate::error::StoreError;
use crate::store::Store;

/// One live sync.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncRow {
    /// Its name.
    pub id: String,
    /// The id of its sandbox.
    pub sandbox_id: String,
    /// The engine's definition.
    pub definition: Value,
    /// When it was started, in milliseconds since 1970.
    pub started_at_ms: i64,
}

impl Store {
    /// All stored syncs, oldest first.
    pub fn syncs(&self) -> Result<Vec<SyncRow>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, sandbox_id, definition, started_at_ms FROM syncs ORDER BY started_at_ms, id",
            )?;
            let rows = statement.query_map([], |row| {
                let definition: String = row.get(2)?;
                Ok(SyncRow {
                    id: row.get(0)?,
                    sandbox_id: row.get(1)?,
                    definition: serde_json::from_str(&definition).unwrap_or_default(),
                    started_at_ms: row.get(3)?,
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Stores a sync and an audit row in one transaction.
    pub fn begin_sync(&self, row: &SyncRow, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                connection
                    .prepare_cached(
                        "INSERT INTO syncs (id, sandbox_id, definition, started_at_ms) VALUES (?1, ?2, ?3, ?4)",
                    )?
                    .execute(params![
                        row.id,
                        row.sandbox_id,
                        row.definition.to_string(),
                        row.started_at_ms
                    ])?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Deletes a sync and adds an audit row in one transaction.
    pub fn end_sync(&self, id: &str, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                forget(connection, id)?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Deletes a sync that ended without a request.
    pub fn forget_sync(&self, id: &str) -> Result<(), StoreError> {
        self.write(|writer| writer.transaction(|connection, _| forget(connection, id)))
    }
}

fn forget(connection: &Connection, id: &str) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM syncs WHERE id = ?1")?.execute(params![id])?;
    Ok(())
}
