//! Environment variables of sandboxes, by address, so that they apply to every sandbox of that name. A change
//! and its audit row are one transaction.

use rusqlite::{Connection, params};

use crate::audit::{AuditEntry, append};
use crate::error::StoreError;
use crate::store::Store;

/// One variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableRow {
    /// Address of the sandbox: its name, after its namespace and `@` unless that is `default`.
    pub sandbox: String,
    /// Name of the variable.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl Store {
    /// All variables of all sandboxes, by name.
    pub fn variables(&self) -> Result<Vec<VariableRow>, StoreError> {
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT sandbox, name, value FROM variables ORDER BY sandbox, name")?;
            let rows = statement.query_map([], |row| {
                Ok(VariableRow { sandbox: row.get(0)?, name: row.get(1)?, value: row.get(2)? })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Sets and unsets variables of a sandbox and adds an audit row in one transaction.
    pub fn change_variables(
        &self,
        sandbox: &str,
        set: &[(String, String)],
        unset: &[String],
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                let mut put = connection.prepare_cached(
                    "INSERT INTO variables (sandbox, name, value) VALUES (?1, ?2, ?3)
                     ON CONFLICT (sandbox, name) DO UPDATE SET value = excluded.value",
                )?;
                for (name, value) in set {
                    put.execute(params![sandbox, name, value])?;
                }
                let mut drop_one =
                    connection.prepare_cached("DELETE FROM variables WHERE sandbox = ?1 AND name = ?2")?;
                for name in unset {
                    drop_one.execute(params![sandbox, name])?;
                }
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Deletes all variables and the spawn count of a sandbox and adds an audit row in one transaction.
    pub fn forget_variables_audited(&self, sandbox: &str, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                forget(connection, sandbox)?;
                crate::secrets::forget_uses(connection, sandbox)?;
                crate::spawn_counts::forget(connection, sandbox)?;
                crate::wipes::forget(connection, sandbox)?;
                append(connection, draft, audit).map(drop)
            })
        })
    }
}

/// Deletes all variables of a sandbox within a transaction.
pub(crate) fn forget(connection: &Connection, sandbox: &str) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM variables WHERE sandbox = ?1")?.execute(params![sandbox])?;
    Ok(())
}
