//! Tenants: namespaces and their tokens. Only the hash of a token is stored, so the database does not give
//! access.

use rusqlite::params;

use crate::audit::{AuditEntry, append};
use crate::error::StoreError;
use crate::store::Store;

/// A token, without the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Its id, which is not secret.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// SHA-256 of the token.
    pub hash: Vec<u8>,
    /// When it was created.
    pub created_at_ms: i64,
    /// When it was last used, to the minute.
    pub last_used_ms: Option<i64>,
}

impl Store {
    /// The created namespaces, by name. `default` always exists and is not included.
    pub fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT name FROM namespaces ORDER BY name")?;
            let names = statement.query_map([], |row| row.get(0))?;
            Ok(names.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// All tokens, oldest first.
    pub fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, namespace, hash, created_at_ms, last_used_ms FROM tokens ORDER BY created_at_ms, id",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(TokenRow {
                    id: row.get(0)?,
                    namespace: row.get(1)?,
                    hash: row.get(2)?,
                    created_at_ms: row.get(3)?,
                    last_used_ms: row.get(4)?,
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Stores a token, its namespace if it is new, and an audit row in one transaction.
    pub fn insert_token(&self, row: &TokenRow, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                connection
                    .prepare_cached(
                        "INSERT INTO namespaces (name, created_at_ms) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                    )?
                    .execute(params![row.namespace, row.created_at_ms])?;
                connection
                    .prepare_cached(
                        "INSERT INTO tokens (id, namespace, hash, created_at_ms, last_used_ms)
                         VALUES (?1, ?2, ?3, ?4, ?5)",
                    )?
                    .execute(params![row.id, row.namespace, row.hash, row.created_at_ms, row.last_used_ms])?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Deletes a token and adds an audit row in one transaction.
    pub fn remove_token(&self, id: &str, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                connection.prepare_cached("DELETE FROM tokens WHERE id = ?1")?.execute(params![id])?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Records when a token was last used.
    pub fn token_used(&self, id: &str, now_ms: i64) -> Result<(), StoreError> {
        self.write(|writer| {
            let mut statement =
                writer.connection.prepare_cached("UPDATE tokens SET last_used_ms = ?2 WHERE id = ?1")?;
            statement.execute(params![id, now_ms])?;
            Ok(())
        })
    }
}
