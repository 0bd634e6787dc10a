//! Pending wipes: recorded before anything is removed, deleted in the transaction that records the end. By
//! address, since what is wiped belongs to the name.

use rusqlite::{Connection, params};

use crate::audit::{AuditEntry, append};
use crate::error::StoreError;
use crate::records::SandboxChange;
use crate::store::Store;

/// A pending wipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WipeRow {
    /// Address of the sandbox: its name, after its namespace and `@` unless that is `default`.
    pub sandbox: String,
    /// `volume` for all that belongs to the name, `workspace` for the files in /workspace only.
    pub what: String,
    /// When it was requested.
    pub asked_at_ms: i64,
}

/// What a wipe changes in the record of the sandbox, in the same transaction.
#[derive(Debug)]
pub struct WipeMark<'a> {
    /// The sandbox's id.
    pub id: &'a str,
    /// Its new state.
    pub change: SandboxChange,
    /// What the audit log says about it, if anything.
    pub audit: Option<&'a AuditEntry>,
}

impl Store {
    /// Pending wipes.
    pub fn wipes(&self) -> Result<Vec<WipeRow>, StoreError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT sandbox, what, asked_at_ms FROM wipes ORDER BY sandbox")?;
            let rows = statement.query_map([], |row| {
                Ok(WipeRow { sandbox: row.get(0)?, what: row.get(1)?, asked_at_ms: row.get(2)? })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Records that a wipe is about to begin, with what it changes in the record of the sandbox.
    pub fn begin_wipe(&self, row: &WipeRow, mark: Option<WipeMark<'_>>) -> Result<(), StoreError> {
        if !matches!(row.what.as_str(), "volume" | "workspace") {
            return Err(StoreError::UnknownWord {
                what: "kind of wipe",
                value: row.what.clone(),
                known: "volume, workspace",
            });
        }
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                // A wipe of everything is not made smaller by one of the files.
                connection
                    .prepare_cached(
                        "INSERT INTO wipes (sandbox, what, asked_at_ms) VALUES (?1, ?2, ?3)
                         ON CONFLICT (sandbox) DO UPDATE SET what = excluded.what
                         WHERE what <> 'volume'",
                    )?
                    .execute(params![row.sandbox, row.what, row.asked_at_ms])?;
                if let Some(mark) = &mark {
                    crate::sandboxes::update(connection, mark.id, &mark.change)?;
                    if let Some(audit) = mark.audit {
                        append(connection, draft, audit)?;
                    }
                }
                Ok(())
            })
        })
    }

    /// There was nothing to wipe.
    pub fn forget_wipe(&self, sandbox: &str) -> Result<(), StoreError> {
        self.write(|writer| forget(&writer.connection, sandbox))
    }

    /// A sandbox runs whose workspace was emptied: its record, the end of the wipe and the audit row are one.
    pub fn emptied_sandbox_audited(
        &self,
        id: &str,
        address: &str,
        change: &SandboxChange,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                crate::sandboxes::update(connection, id, change)?;
                forget(connection, address)?;
                append(connection, draft, audit).map(drop)
            })
        })
    }
}

/// A wipe is done, inside a change.
pub(crate) fn forget(connection: &Connection, sandbox: &str) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM wipes WHERE sandbox = ?1")?.execute(params![sandbox])?;
    Ok(())
}
