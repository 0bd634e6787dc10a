//! Checking the chain from its first row to its head, and telling what was done to it.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::audit::append::place;
use crate::audit::encode::{Fields, GENESIS, hexadecimal};
use crate::audit::load::{StoredHead, read_key};
use crate::audit::{AuditFault, AuditKey, AuditProblem, AuditVerdict, Chain, Hash, Head};
use crate::connection::connect_further;
use crate::error::StoreError;
use crate::store::Store;

const SELECT: &str =
    "SELECT seq, time_ms, actor, door, action, sandbox, run, detail, prev_hash, hash, namespace FROM audit";

impl Store {
    /// Checks the whole chain. Takes a connection of its own, so that nobody waits for it.
    pub fn verify_audit(&self) -> Result<AuditVerdict, StoreError> {
        let shared = &self.inner.shared;
        let connection = connect_further(&shared.path)?;
        // The view and the head must be of one moment, so the view is taken while nobody writes.
        let (stored, chain) = {
            let writer = shared.writer();
            connection.execute_batch("BEGIN")?;
            (StoredHead::read(&connection)?, writer.chain.clone())
        };
        let key = key_state(&shared.key_path, &chain)?;
        let mut walk = Walk { connection: &connection, head: &chain.head, seq: 0, hash: GENESIS };
        let fault = match walk.find_fault()? {
            Some(fault) => Some(fault),
            None => head_fault(stored.as_ref(), &chain, key),
        };
        Ok(AuditVerdict { rows: walk.seq, head: hexadecimal(&chain.head.hash), key, fault })
    }
}

fn key_state(path: &Path, chain: &Chain) -> Result<AuditKey, StoreError> {
    match read_key(path) {
        Ok(Some(key)) if key.bytes() == chain.key.bytes() => Ok(AuditKey::Present),
        Ok(Some(_)) | Err(StoreError::Corrupt { .. }) => Ok(AuditKey::Changed),
        Ok(None) => Ok(AuditKey::Missing),
        Err(error) => Err(error),
    }
}

fn head_fault(stored: Option<&StoredHead>, chain: &Chain, key: AuditKey) -> Option<AuditFault> {
    let seq = chain.head.seq;
    let fault = |problem| Some(AuditFault { seq, problem });
    if let Some(taint) = &chain.head.taint {
        return Some(taint.clone());
    }
    match stored {
        None => return fault(AuditProblem::HeadMissing),
        Some(stored)
            if !stored.is_sealed_by(&chain.key) || stored.seq != seq || stored.hash != chain.head.hash =>
        {
            return fault(AuditProblem::HeadForged);
        }
        Some(_) => {}
    }
    match key {
        AuditKey::Present => None,
        AuditKey::Missing => fault(AuditProblem::KeyMissing),
        AuditKey::Changed => fault(AuditProblem::KeyChanged),
    }
}

/// A row as it is stored.
struct Stored {
    time_ms: i64,
    actor: String,
    door: String,
    action: String,
    sandbox: Option<String>,
    run: Option<String>,
    detail: String,
    prev_hash: Vec<u8>,
    hash: Vec<u8>,
    namespace: Option<String>,
}

impl Stored {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            time_ms: row.get(1)?,
            actor: row.get(2)?,
            door: row.get(3)?,
            action: row.get(4)?,
            sandbox: row.get(5)?,
            run: row.get(6)?,
            detail: row.get(7)?,
            prev_hash: row.get(8)?,
            hash: row.get(9)?,
            namespace: row.get(10)?,
        })
    }

    fn at(connection: &Connection, seq: u64) -> Option<Self> {
        let text = format!("{SELECT} WHERE seq = ?1");
        // A row that cannot be read is no witness for anything.
        connection.query_row(&text, params![place(seq)], Self::read).optional().ok().flatten()
    }

    fn is_written_as(&self, seq: u64) -> bool {
        let fields = Fields {
            time_ms: self.time_ms,
            actor: &self.actor,
            door: &self.door,
            action: &self.action,
            sandbox: self.sandbox.as_deref(),
            run: self.run.as_deref(),
            detail: &self.detail,
            prev_hash: &self.prev_hash,
            namespace: self.namespace.as_deref(),
        };
        self.hash == fields.hash(seq)
    }
}

/// The walk along the chain; everything up to `seq` is good and ends in `hash`.
struct Walk<'a> {
    connection: &'a Connection,
    head: &'a Head,
    seq: u64,
    hash: Hash,
}

impl Walk<'_> {
    fn find_fault(&mut self) -> Result<Option<AuditFault>, StoreError> {
        let mut statement = self.connection.prepare(&format!("{SELECT} ORDER BY seq"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            let expected = self.seq + 1;
            let seq = match u64::try_from(seq) {
                Ok(seq) if (1..=self.head.seq).contains(&seq) => seq,
                outside => {
                    // Past the head, but the chain may be cut short before it as well.
                    let problem = AuditProblem::Inserted;
                    return Ok(Some(match outside {
                        Ok(seq) if seq > self.head.seq && self.seq < self.head.seq => self.removed(),
                        outside => AuditFault { seq: outside.unwrap_or(0), problem },
                    }));
                }
            };
            if seq != expected {
                return Ok(Some(self.removed()));
            }
            let Ok(stored) = Stored::read(row) else {
                return Ok(Some(AuditFault { seq, problem: AuditProblem::Edited }));
            };
            if !stored.is_written_as(seq) {
                return Ok(Some(self.explain_hash(&stored)?));
            }
            if stored.prev_hash != self.hash {
                return Ok(Some(self.explain_link(&stored)));
            }
            let Ok(hash) = Hash::try_from(stored.hash.as_slice()) else {
                return Ok(Some(AuditFault { seq, problem: AuditProblem::Edited }));
            };
            (self.seq, self.hash) = (seq, hash);
        }
        if self.seq < self.head.seq {
            return Ok(Some(self.removed()));
        }
        if self.hash != self.head.hash {
            return Ok(Some(AuditFault { seq: self.seq, problem: AuditProblem::Rewritten }));
        }
        Ok(None)
    }

    fn removed(&self) -> AuditFault {
        AuditFault { seq: self.seq + 1, problem: AuditProblem::Removed }
    }

    /// The row's hash is not that of its content at its place.
    fn explain_hash(&self, row: &Stored) -> Result<AuditFault, StoreError> {
        let seq = self.seq + 1;
        let written_as = (1..=self.head.seq).find(|&other| other != seq && row.is_written_as(other));
        Ok(match written_as {
            // Renumbered upwards: what stands at its old place was put in front of it.
            Some(earlier) if earlier < seq => AuditFault { seq: earlier, problem: AuditProblem::Inserted },
            // Renumbered downwards: the row that belongs here is elsewhere, or nowhere.
            Some(later) if self.row_that_follows()?.is_some() => {
                AuditFault { seq, problem: AuditProblem::Reordered { written_as: later } }
            }
            Some(_) => self.removed(),
            None => {
                let displaced = Stored::at(self.connection, seq + 1)
                    .is_some_and(|next| next.is_written_as(seq) && next.prev_hash == self.hash);
                let problem = if displaced { AuditProblem::Inserted } else { AuditProblem::Edited };
                AuditFault { seq, problem }
            }
        })
    }

    /// The row is whole in itself, but not chained to the row before it: one of the two was rewritten.
    /// What comes after tells which.
    fn explain_link(&self, row: &Stored) -> AuditFault {
        let seq = self.seq + 1;
        let genuine = if seq == self.head.seq {
            row.hash == self.head.hash
        } else {
            Stored::at(self.connection, seq + 1).is_some_and(|next| next.prev_hash == row.hash)
        };
        let seq = if genuine && self.seq > 0 { self.seq } else { seq };
        AuditFault { seq, problem: AuditProblem::Edited }
    }

    /// Where the row is that was written right after the last good one, when it is not in its place.
    fn row_that_follows(&self) -> Result<Option<i64>, StoreError> {
        Ok(self
            .connection
            .query_row(
                "SELECT seq FROM audit WHERE prev_hash = ?1 AND seq <> ?2",
                params![self.hash, place(self.seq + 1)],
                |row| row.get(0),
            )
            .optional()?)
    }
}
