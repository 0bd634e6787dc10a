//! The audit chain: each row contains the hash of the previous one, and the newest hash is sealed with an
//! HMAC whose key is outside the database. Without the key, a row cannot be changed, removed, added or moved
//! undetected. Restoring an older copy of the whole state directory cannot be detected by a chain on the same
//! disk.

mod append;
mod encode;
mod list;
mod load;
mod verdict;
mod verify;

pub(crate) use append::append;
pub(crate) use encode::Hash;
pub use verdict::{AuditFault, AuditKey, AuditProblem, AuditVerdict};

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;

/// An entry to append.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Wall clock time.
    pub time_ms: i64,
    /// The caller.
    pub actor: String,
    /// The door (CLI, MCP, HTTP) of the call.
    pub door: String,
    /// The action.
    pub action: String,
    /// The sandbox.
    pub sandbox: Option<String>,
    /// The run.
    pub run: Option<String>,
    /// Details.
    pub detail: Value,
    /// The namespace; `None` for `default`.
    pub namespace: Option<String>,
}

/// A stored entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditRow {
    /// The sequence number: 1, 2, 3 and so on, without gaps.
    pub seq: u64,
    /// Wall clock time.
    pub time_ms: i64,
    /// The caller.
    pub actor: String,
    /// The door (CLI, MCP, HTTP) of the call.
    pub door: String,
    /// The action.
    pub action: String,
    /// The sandbox.
    pub sandbox: Option<String>,
    /// The run.
    pub run: Option<String>,
    /// Details.
    pub detail: Value,
    /// The namespace; `None` for `default`.
    pub namespace: Option<String>,
    /// Hash of the previous row, in hexadecimal; zeros for the first.
    pub prev_hash: String,
    /// Hash of this row, in hexadecimal.
    pub hash: String,
}

/// Which rows to list, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only this sandbox.
    pub sandbox: Option<String>,
    /// Maximum number of rows, 1 to 500.
    pub limit: u32,
    /// Only rows before this sequence number.
    pub before: Option<u64>,
}

impl Default for AuditFilter {
    fn default() -> Self {
        Self { namespace: None, action: None, sandbox: None, limit: 100, before: None }
    }
}

/// The end of the chain: the sequence number and hash of the newest row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    pub(crate) hash: Hash,
    /// A fault found when the store was opened. It is never cleared: otherwise a new seal would cover what
    /// was tampered with.
    pub(crate) taint: Option<AuditFault>,
}

/// The chain of the writer.
#[derive(Clone)]
pub(crate) struct Chain {
    pub(crate) head: Head,
    pub(crate) key: Key,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Chain").field("head", &self.head).finish_non_exhaustive()
    }
}

/// The key of the seal.
#[derive(Clone)]
pub(crate) struct Key {
    bytes: [u8; Key::LENGTH],
    prepared: Hmac<Sha256>,
}

impl Key {
    pub(crate) const LENGTH: usize = 32;

    pub(crate) fn new(bytes: [u8; Self::LENGTH]) -> Self {
        // The same as `new_from_slice`, which would have to be unwrapped.
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        block[..Self::LENGTH].copy_from_slice(&bytes);
        Self { bytes, prepared: <Hmac<Sha256> as hmac::digest::KeyInit>::new(&block) }
    }

    pub(crate) fn bytes(&self) -> &[u8; Self::LENGTH] {
        &self.bytes
    }

    /// The seal of a head.
    pub(crate) fn seal(&self, seq: u64, hash: &[u8], taint: Option<&str>) -> Hash {
        self.sealing(seq, hash, taint).finalize().into_bytes().into()
    }

    /// Whether a seal is valid for a head. Compares in constant time.
    pub(crate) fn seals(&self, seq: u64, hash: &[u8], taint: Option<&str>, code: &[u8]) -> bool {
        self.sealing(seq, hash, taint).verify_slice(code).is_ok()
    }

    fn sealing(&self, seq: u64, hash: &[u8], taint: Option<&str>) -> Hmac<Sha256> {
        let mut code = self.prepared.clone();
        encode::head(seq, hash, taint, |part| code.update(part));
        code
    }
}
