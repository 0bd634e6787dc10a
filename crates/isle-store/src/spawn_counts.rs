//! How many children each sandbox ever had. Counted in the transaction that records a child as running, so
//! that a crash cannot leave an uncounted child.

use rusqlite::{Connection, params};

use crate::audit::{AuditEntry, append};
use crate::error::StoreError;
use crate::records::SandboxChange;
use crate::sandboxes::update;
use crate::store::Store;

impl Store {
    /// Sandboxes that had children, and how many.
    pub fn spawns(&self) -> Result<Vec<(String, u32)>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT sandbox, count FROM spawns")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Changes the record of a child, counts it for its parent and adds an audit row in one transaction.
    pub fn count_spawn_audited(
        &self,
        id: &str,
        change: SandboxChange,
        parent: &str,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                update(connection, id, &change)?;
                let mut statement = connection.prepare_cached(
                    "INSERT INTO spawns (sandbox, count) VALUES (?1, 1)
                     ON CONFLICT (sandbox) DO UPDATE SET count = count + 1",
                )?;
                statement.execute(params![parent])?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Resets a count and adds an audit row in one transaction.
    pub fn reset_spawns_audited(&self, sandbox: &str, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                forget(connection, sandbox)?;
                append(connection, draft, audit).map(drop)
            })
        })
    }
}

/// Deletes the count of a sandbox within a transaction.
pub(crate) fn forget(connection: &Connection, sandbox: &str) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM spawns WHERE sandbox = ?1")?.execute(params![sandbox])?;
    Ok(())
}
