//! Loading the chain when the store is opened. A fault found then is recorded in the sealed head for good; a
//! new chain gets its key.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use crate::audit::append::save_head;
use crate::audit::encode::GENESIS;
use crate::audit::{AuditFault, AuditProblem, Chain, Hash, Head, Key};
use crate::error::StoreError;
use crate::files;

/// The stored head, before its seal is checked.
pub(super) struct StoredHead {
    pub(super) seq: u64,
    pub(super) hash: Vec<u8>,
    pub(super) taint: Option<String>,
    pub(super) code: Vec<u8>,
}

impl StoredHead {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        connection
            .query_row("SELECT seq, hash, taint, mac FROM audit_head WHERE only = 1", [], |row| {
                Ok(Self {
                    seq: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
                    hash: row.get(1)?,
                    taint: row.get(2)?,
                    code: row.get(3)?,
                })
            })
            .optional()
    }

    pub(super) fn is_sealed_by(&self, key: &Key) -> bool {
        key.seals(self.seq, &self.hash, self.taint.as_deref(), &self.code)
    }

    /// The head in memory; `None` if it is malformed.
    fn parse(&self) -> Option<Head> {
        let taint = match &self.taint {
            Some(text) => Some(serde_json::from_str(text).ok()?),
            None => None,
        };
        Some(Head { seq: self.seq, hash: Hash::try_from(self.hash.as_slice()).ok()?, taint })
    }
}

/// Reads the key file, if there is one.
pub(super) fn read_key(path: &Path) -> Result<Option<Key>, StoreError> {
    let Some(bytes) = files::read_optional(path)? else { return Ok(None) };
    match <[u8; Key::LENGTH]>::try_from(bytes.as_slice()) {
        Ok(bytes) => Ok(Some(Key::new(bytes))),
        Err(_) => Err(StoreError::Corrupt {
            path: path.to_owned(),
            reason: format!("the audit key has {} bytes instead of {}", bytes.len(), Key::LENGTH),
        }),
    }
}

impl Chain {
    /// Loads the chain of a database.
    pub(crate) fn load(connection: &mut Connection, key_path: &Path) -> Result<Self, StoreError> {
        let stored = StoredHead::read(connection)?;
        let last = last_row(connection)?;
        let Some(key) = read_key(key_path)? else {
            return Self::begin(connection, key_path, stored.as_ref(), last);
        };
        let sealed = stored.as_ref().filter(|stored| stored.is_sealed_by(&key)).and_then(StoredHead::parse);
        let head = match (sealed, last) {
            // Rows after a sealed head: continue after them, or no row could be added.
            (Some(head), Some((seq, hash))) if seq > head.seq => {
                let fault = AuditFault { seq: head.seq + 1, problem: AuditProblem::Inserted };
                Head { seq, hash, taint: head.taint.or(Some(fault)) }
            }
            // The sealed head takes precedence over the rows: a difference shows in the next verification.
            (Some(head), _) => return Ok(Self { head, key }),
            (None, last) => {
                let (seq, hash) = last.unwrap_or((0, GENESIS));
                let problem =
                    if stored.is_some() { AuditProblem::HeadForged } else { AuditProblem::HeadMissing };
                Head { seq, hash, taint: Some(AuditFault { seq, problem }) }
            }
        };
        tracing::error!(fault = ?head.taint, "the audit chain was tampered with");
        save_head(connection, &key, &head)?;
        Ok(Self { head, key })
    }

    /// There is no key: the chain is new, or the key was lost. The head is written to disk before the key, so
    /// that a key without a head always means that the head was removed.
    fn begin(
        connection: &mut Connection,
        key_path: &Path,
        stored: Option<&StoredHead>,
        last: Option<(u64, Hash)>,
    ) -> Result<Self, StoreError> {
        let mut bytes = [0; Key::LENGTH];
        getrandom::fill(&mut bytes)
            .map_err(|error| StoreError::io("make", key_path, std::io::Error::other(error.to_string())))?;
        let key = Key::new(bytes);
        let head = stored.and_then(StoredHead::parse);
        let is_new = last.is_none() && stored.is_none_or(|stored| stored.seq == 0);
        let head = if is_new {
            Head { seq: 0, hash: GENESIS, taint: None }
        } else {
            let (row_seq, row_hash) = last.unwrap_or((0, GENESIS));
            let (seq, hash, taint) = match head {
                Some(head) if head.seq >= row_seq => (head.seq, head.hash, head.taint),
                Some(_) | None => (row_seq, row_hash, None),
            };
            let fault = AuditFault { seq, problem: AuditProblem::KeyMissing };
            tracing::error!(%fault, "the audit chain cannot be verified");
            Head { seq, hash, taint: taint.or(Some(fault)) }
        };
        save_head(connection, &key, &head)?;
        connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), rusqlite::wal::CheckpointMode::TRUNCATE)?;
        files::write_whole(key_path, &bytes)?;
        Ok(Self { head, key })
    }
}

fn last_row(connection: &Connection) -> Result<Option<(u64, Hash)>, StoreError> {
    let row: Option<(i64, Vec<u8>)> = connection
        .query_row("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1", params![], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    Ok(row.map(|(seq, hash)| {
        // A hash of the wrong length is reported by the verification.
        (u64::try_from(seq).unwrap_or(0), Hash::try_from(hash.as_slice()).unwrap_or(GENESIS))
    }))
}
