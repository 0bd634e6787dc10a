//! Verification of the chain from its first row to its head, and diagnosis of the first fault.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::audit::append::sql_seq;
use crate::audit::encode::{Fields, GENESIS, hexadecimal};
use crate::audit::load::{StoredHead, read_key};
use crate::audit::{AuditFault, AuditKey, AuditProblem, AuditVerdict, Chain, Hash, Head};
use crate::connection::connect_further;
use crate::error::StoreError;
use crate::store::Store;

const SELECT: &str =
    "SELECT seq, time_ms, actor, door, action, sandbox, run, detail, prev_hash, hash, namespace FROM audit";

impl Store {
    /// Verifies the whole chain, on a separate connection, so that other calls do not wait. A verified chain
    /// is recorded, sealed with the key, for [`Self::verify_new_audit`].
    pub fn verify_audit(&self) -> Result<AuditVerdict, StoreError> {
        self.verify_from(|_, _| Ok(None))
    }

    /// Verifies the rows added since the last successful verification, or all of them if there was none.
    /// Later changes of older rows are not detected.
    pub fn verify_new_audit(&self) -> Result<AuditVerdict, StoreError> {
        self.verify_from(verified_before)
    }

    fn verify_from(
        &self,
        start: impl FnOnce(&Connection, &Chain) -> Result<Option<(u64, Hash)>, StoreError>,
    ) -> Result<AuditVerdict, StoreError> {
        let shared = &self.inner.shared;
        let connection = connect_further(&shared.path)?;
        // The read transaction and the head must match, so the transaction begins under the writer's lock.
        let (stored, chain) = {
            let writer = shared.writer();
            connection.execute_batch("BEGIN")?;
            (StoredHead::read(&connection)?, writer.chain.clone())
        };
        let key = key_state(&shared.key_path, &chain)?;
        let (from, hash) = start(&connection, &chain)?.unwrap_or((0, GENESIS));
        let mut walk = Walk { connection: &connection, head: &chain.head, seq: from, hash };
        let fault = match walk.find_fault()? {
            Some(fault) => Some(fault),
            None => head_fault(stored.as_ref(), &chain, key),
        };
        let (rows, checked) = (walk.seq, walk.seq - from);
        if fault.is_none() {
            self.set_value(VERIFIED, &verified_mark(&chain))?;
        }
        Ok(AuditVerdict { rows, checked, head: hexadecimal(&chain.head.hash), key, fault })
    }
}

/// The key of the last successful verification: sequence number, hash and seal.
const VERIFIED: &str = "audit_verified";
/// Sealed with it, so that it cannot be confused with the seal of the head.
const VERIFIED_SEAL: Option<&str> = Some("verified");

fn verified_mark(chain: &Chain) -> String {
    let Head { seq, hash, .. } = &chain.head;
    let code = chain.key.seal(*seq, hash, VERIFIED_SEAL);
    format!("{seq} {} {}", hexadecimal(hash), hexadecimal(&code))
}

/// The last row of the verified part. `None` if the record is not valid: then everything is verified.
fn verified_before(connection: &Connection, chain: &Chain) -> Result<Option<(u64, Hash)>, StoreError> {
    let mark: Option<String> = connection
        .query_row("SELECT value FROM facts WHERE key = ?1", params![VERIFIED], |row| row.get(0))
        .optional()?;
    let parsed = mark.as_deref().and_then(|mark| {
        let mut parts = mark.split(' ');
        let (seq, hash, code) = (parts.next()?, parts.next()?, parts.next()?);
        let hash = Hash::try_from(bytes_of(hash)?.as_slice()).ok()?;
        Some((seq.parse::<u64>().ok()?, hash, bytes_of(code)?))
    });
    let Some((seq, hash, code)) = parsed else { return Ok(None) };
    let is_sealed = seq <= chain.head.seq && chain.key.seals(seq, &hash, VERIFIED_SEAL, &code);
    // Its last row must be unchanged.
    let is_there =
        seq == 0 || Stored::at(connection, seq).is_some_and(|row| row.hash == hash && row.is_written_as(seq));
    Ok((is_sealed && is_there).then_some((seq, hash)))
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
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
        // A row that cannot be read proves nothing.
        connection.query_row(&text, params![sql_seq(seq)], Self::read).optional().ok().flatten()
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

/// The hash of a row whose content is unchanged and that is chained to the previous row.
fn hash_of_good_row(row: &Row<'_>, seq: u64, before: &Hash) -> Option<Hash> {
    let text = |column: usize| row.get_ref(column).ok()?.as_str().ok();
    let optional = |column: usize| row.get_ref(column).ok()?.as_str_or_null().ok();
    let bytes = |column: usize| row.get_ref(column).ok()?.as_blob().ok();
    let fields = Fields {
        time_ms: row.get(1).ok()?,
        actor: text(2)?,
        door: text(3)?,
        action: text(4)?,
        sandbox: optional(5)?,
        run: optional(6)?,
        detail: text(7)?,
        prev_hash: bytes(8)?,
        namespace: optional(10)?,
    };
    let hash = Hash::try_from(bytes(9)?).ok()?;
    (fields.prev_hash == before && fields.hash(seq) == hash).then_some(hash)
}

/// The walk along the chain; everything up to `seq` is verified and ends in `hash`.
struct Walk<'a> {
    connection: &'a Connection,
    head: &'a Head,
    seq: u64,
    hash: Hash,
}

impl Walk<'_> {
    fn find_fault(&mut self) -> Result<Option<AuditFault>, StoreError> {
        // A full walk also checks for rows before the first one.
        let after = if self.seq == 0 { i64::MIN } else { sql_seq(self.seq) };
        let mut statement = self.connection.prepare(&format!("{SELECT} WHERE seq > ?1 ORDER BY seq"))?;
        let mut rows = statement.query(params![after])?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            let expected = self.seq + 1;
            let seq = match u64::try_from(seq) {
                Ok(seq) if (1..=self.head.seq).contains(&seq) => seq,
                outside => {
                    // After the head; the chain may also have been truncated before it.
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
            // Nearly every row is intact, and is verified without copying it.
            if let Some(hash) = hash_of_good_row(row, seq, &self.hash) {
                (self.seq, self.hash) = (seq, hash);
                continue;
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

    /// The row's hash does not match its content and sequence number.
    fn explain_hash(&self, row: &Stored) -> Result<AuditFault, StoreError> {
        let seq = self.seq + 1;
        let written_as = (1..=self.head.seq).find(|&other| other != seq && row.is_written_as(other));
        Ok(match written_as {
            // Renumbered upwards: the row at its old position was inserted.
            Some(earlier) if earlier < seq => AuditFault { seq: earlier, problem: AuditProblem::Inserted },
            // Renumbered downwards: the row that belongs here was moved or removed.
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

    /// The row is consistent, but not chained to the previous row: one of the two was rewritten. The rows
    /// after it tell which.
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

    /// The position of the row that was written right after the last verified one, if it was moved.
    fn row_that_follows(&self) -> Result<Option<i64>, StoreError> {
        Ok(self
            .connection
            .query_row(
                "SELECT seq FROM audit WHERE prev_hash = ?1 AND seq <> ?2",
                params![self.hash, sql_seq(self.seq + 1)],
                |row| row.get(0),
            )
            .optional()?)
    }
}
