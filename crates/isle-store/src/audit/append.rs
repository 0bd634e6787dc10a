//! Appending to the chain: the row and the new head, in the transaction of the change they record.

use rusqlite::{Connection, params};

use crate::audit::encode::Fields;
use crate::audit::{AuditEntry, Head, Key};
use crate::connection::Draft;
use crate::error::StoreError;
use crate::store::Store;

impl Store {
    /// Appends an entry. Returns its sequence number.
    pub fn append_audit(&self, entry: &AuditEntry) -> Result<u64, StoreError> {
        self.write(|writer| writer.transaction(|connection, draft| append(connection, draft, entry)))
    }
}

/// Appends within a transaction.
pub(crate) fn append(
    connection: &Connection,
    draft: &mut Draft<'_>,
    entry: &AuditEntry,
) -> Result<u64, StoreError> {
    let last = draft.head.as_ref().unwrap_or(&draft.chain.head);
    let detail = entry.detail.to_string();
    let seq = last.seq + 1;
    let fields = Fields {
        time_ms: entry.time_ms,
        actor: &entry.actor,
        door: &entry.door,
        action: &entry.action,
        sandbox: entry.sandbox.as_deref(),
        run: entry.run.as_deref(),
        detail: &detail,
        prev_hash: &last.hash,
        namespace: entry.namespace.as_deref(),
    };
    let hash = fields.hash(seq);
    connection
        .prepare_cached(
            "INSERT INTO audit (seq, time_ms, actor, door, action, sandbox, run, detail, prev_hash, hash,
                 namespace)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            sql_seq(seq),
            fields.time_ms,
            fields.actor,
            fields.door,
            fields.action,
            fields.sandbox,
            fields.run,
            fields.detail,
            fields.prev_hash,
            hash,
            fields.namespace,
        ])?;
    let head = Head { seq, hash, taint: last.taint.clone() };
    save_head(connection, &draft.chain.key, &head)?;
    draft.head = Some(head);
    Ok(seq)
}

/// Writes the head and its seal.
pub(super) fn save_head(connection: &Connection, key: &Key, head: &Head) -> Result<(), StoreError> {
    let taint = head.taint.as_ref().map(serde_json::to_string).transpose()?;
    let code = key.seal(head.seq, &head.hash, taint.as_deref());
    let values = params![sql_seq(head.seq), head.hash, taint, code];
    let change = "UPDATE audit_head SET seq = ?1, hash = ?2, taint = ?3, mac = ?4 WHERE only = 1";
    if connection.prepare_cached(change)?.execute(values)? == 0 {
        let first = "INSERT INTO audit_head (only, seq, hash, taint, mac) VALUES (1, ?1, ?2, ?3, ?4)";
        connection.execute(first, values)?;
    }
    Ok(())
}

/// A sequence number as an SQLite integer.
pub(super) fn sql_seq(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
