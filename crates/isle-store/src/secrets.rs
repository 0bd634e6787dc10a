//! Secrets, encrypted by the caller: the database contains names, hosts and times, never a value. Also which
//! sandbox uses which secret, by address of the sandbox.

use rusqlite::{Connection, OptionalExtension, params};

use crate::audit::{AuditEntry, append};
use crate::error::StoreError;
use crate::store::Store;

/// The key of the check text, which only the right key decrypts.
const CHECK: &str = "vault_check";

/// One encrypted secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretRow {
    /// Whose it is.
    pub namespace: String,
    /// Its name there.
    pub name: String,
    /// Counts up each time it is set.
    pub version: u64,
    /// What its value was sealed with besides the key.
    pub nonce: Vec<u8>,
    /// Its value, sealed.
    pub sealed: Vec<u8>,
    /// Hosts it may be sent to, as JSON.
    pub hosts: String,
    /// When it is no longer used.
    pub expires_at_ms: Option<i64>,
    /// When it was set.
    pub set_at_ms: i64,
}

impl std::fmt::Debug for SecretRow {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SecretRow")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A secret that a sandbox has, or once had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretUseRow {
    /// Address of the sandbox.
    pub sandbox: String,
    /// Name of the secret.
    pub name: String,
    /// Its placeholder in the sandbox.
    pub placeholder: String,
    /// The environment variable of every command that has it; `None` if only single runs had it.
    pub variable: Option<String>,
    /// Whether the variable has the value itself.
    pub exposed: bool,
    /// Whether the variable ever had the value itself.
    pub ever_exposed: bool,
    /// Ids of runs that have it, as JSON.
    pub runs: String,
}

impl Store {
    /// All encrypted secrets of all namespaces.
    pub fn secrets(&self) -> Result<Vec<SecretRow>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT namespace, name, version, nonce, sealed, hosts, expires_at_ms, set_at_ms FROM secrets",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(SecretRow {
                    namespace: row.get(0)?,
                    name: row.get(1)?,
                    version: row.get::<_, i64>(2)?.unsigned_abs(),
                    nonce: row.get(3)?,
                    sealed: row.get(4)?,
                    hosts: row.get(5)?,
                    expires_at_ms: row.get(6)?,
                    set_at_ms: row.get(7)?,
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// The check text, which only the right key decrypts; `None` without secrets.
    pub fn vault_check(&self) -> Result<Option<String>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT value FROM facts WHERE key = ?1")?;
            Ok(statement.query_row(params![CHECK], |row| row.get(0)).optional()?)
        })
    }

    /// Stores a secret, the check text and an audit row in one transaction.
    pub fn put_secret(&self, row: &SecretRow, check: &str, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                connection
                    .prepare_cached(
                        "INSERT INTO facts (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING",
                    )?
                    .execute(params![CHECK, check])?;
                connection
                    .prepare_cached(
                        "INSERT INTO secrets
                         (namespace, name, version, nonce, sealed, hosts, expires_at_ms, set_at_ms)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                         ON CONFLICT (namespace, name) DO UPDATE SET version = excluded.version,
                         nonce = excluded.nonce, sealed = excluded.sealed, hosts = excluded.hosts,
                         expires_at_ms = excluded.expires_at_ms, set_at_ms = excluded.set_at_ms",
                    )?
                    .execute(params![
                        row.namespace,
                        row.name,
                        i64::try_from(row.version).unwrap_or(i64::MAX),
                        row.nonce,
                        row.sealed,
                        row.hosts,
                        row.expires_at_ms,
                        row.set_at_ms,
                    ])?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Deletes a secret and adds an audit row in one transaction. The check text is deleted with the last
    /// secret, so that another key can be chosen.
    pub fn remove_secret(&self, namespace: &str, name: &str, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                connection
                    .prepare_cached("DELETE FROM secrets WHERE namespace = ?1 AND name = ?2")?
                    .execute(params![namespace, name])?;
                connection
                    .prepare_cached(
                        "DELETE FROM facts WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM secrets)",
                    )?
                    .execute(params![CHECK])?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Which sandboxes use which secrets.
    pub fn secret_uses(&self) -> Result<Vec<SecretUseRow>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT sandbox, name, placeholder, variable, exposed, ever_exposed, runs FROM secret_uses
                 ORDER BY sandbox, name",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(SecretUseRow {
                    sandbox: row.get(0)?,
                    name: row.get(1)?,
                    placeholder: row.get(2)?,
                    variable: row.get(3)?,
                    exposed: row.get(4)?,
                    ever_exposed: row.get(5)?,
                    runs: row.get(6)?,
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Replaces the secret uses of a sandbox, and adds an optional audit row, in one transaction.
    pub fn put_secret_uses(
        &self,
        sandbox: &str,
        rows: &[SecretUseRow],
        audit: Option<&AuditEntry>,
    ) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                forget_uses(connection, sandbox)?;
                let mut put = connection.prepare_cached(
                    "INSERT INTO secret_uses
                     (sandbox, name, placeholder, variable, exposed, ever_exposed, runs)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?;
                for row in rows {
                    put.execute(params![
                        sandbox,
                        row.name,
                        row.placeholder,
                        row.variable,
                        row.exposed,
                        row.ever_exposed,
                        row.runs,
                    ])?;
                }
                match audit {
                    Some(audit) => append(connection, draft, audit).map(drop),
                    None => Ok(()),
                }
            })
        })
    }
}

/// Deletes the secret uses of a sandbox within a transaction.
pub(crate) fn forget_uses(connection: &Connection, sandbox: &str) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM secret_uses WHERE sandbox = ?1")?.execute(params![sandbox])?;
    Ok(())
}
