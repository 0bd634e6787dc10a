//! Webhooks: where events are sent, and the position of each receiver. The signing secret is not stored: it
//! is derived from a key in a separate file, and the database has only its hash.

use rusqlite::params;
use serde_json::Value;

use crate::audit::{AuditEntry, append};
use crate::error::StoreError;
use crate::files;
use crate::store::Store;

/// Bytes of the key.
pub const WEBHOOK_KEY_LENGTH: usize = 32;

/// One webhook.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookRow {
    /// Its id.
    pub id: String,
    /// The namespace whose events it receives; `None` for all.
    pub namespace: Option<String>,
    /// The engine's definition.
    pub definition: Value,
    /// SHA-256 of the signing secret.
    pub hash: Vec<u8>,
    /// When it was created.
    pub created_at_ms: i64,
    /// The newest event that was delivered or skipped.
    pub place: u64,
    /// Events that were deleted before they could be sent.
    pub lost: u64,
}

impl Store {
    /// All webhooks, oldest first.
    pub fn webhooks(&self) -> Result<Vec<WebhookRow>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, namespace, definition, hash, created_at_ms, place, lost FROM webhooks
                 ORDER BY created_at_ms, id",
            )?;
            let rows = statement.query_map([], |row| {
                let definition: String = row.get(2)?;
                let count = |value: i64| u64::try_from(value).unwrap_or(0);
                Ok(WebhookRow {
                    id: row.get(0)?,
                    namespace: row.get(1)?,
                    definition: serde_json::from_str(&definition).unwrap_or_default(),
                    hash: row.get(3)?,
                    created_at_ms: row.get(4)?,
                    place: count(row.get(5)?),
                    lost: count(row.get(6)?),
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Stores a webhook and an audit row in one transaction.
    pub fn insert_webhook(&self, row: &WebhookRow, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                connection
                    .prepare_cached(
                        "INSERT INTO webhooks (id, namespace, definition, hash, created_at_ms, place, lost)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    )?
                    .execute(params![
                        row.id,
                        row.namespace,
                        row.definition.to_string(),
                        row.hash,
                        row.created_at_ms,
                        stored(row.place),
                        stored(row.lost),
                    ])?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Deletes a webhook and adds an audit row in one transaction.
    pub fn remove_webhook(&self, id: &str, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                connection.prepare_cached("DELETE FROM webhooks WHERE id = ?1")?.execute(params![id])?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Stores the position of a webhook's receiver, without an immediate flush.
    pub fn webhook_reached(&self, id: &str, place: u64, lost: u64) -> Result<(), StoreError> {
        let writer = self.inner.shared.writer();
        let mut statement =
            writer.connection.prepare_cached("UPDATE webhooks SET place = ?2, lost = ?3 WHERE id = ?1")?;
        statement.execute(params![id, stored(place), stored(lost)])?;
        Ok(())
    }

    /// The key from which signing secrets are derived; `None` if there is none yet.
    pub fn webhook_key(&self) -> Result<Option<[u8; WEBHOOK_KEY_LENGTH]>, StoreError> {
        let path = self.webhook_key_path();
        let Some(bytes) = files::read_optional(&path)? else { return Ok(None) };
        match <[u8; WEBHOOK_KEY_LENGTH]>::try_from(bytes.as_slice()) {
            Ok(key) => Ok(Some(key)),
            Err(_) => {
                let reason = format!("the key has {} bytes instead of {WEBHOOK_KEY_LENGTH}", bytes.len());
                Err(StoreError::Corrupt { path, reason })
            }
        }
    }

    /// Writes that key atomically.
    pub fn set_webhook_key(&self, key: &[u8; WEBHOOK_KEY_LENGTH]) -> Result<(), StoreError> {
        files::write_whole(&self.webhook_key_path(), key)
    }

    fn webhook_key_path(&self) -> std::path::PathBuf {
        self.inner.shared.path.with_file_name("webhook.key")
    }
}

fn stored(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
