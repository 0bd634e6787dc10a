//! The audit chain: each row carries the hash of the one before it, and a keyed code over the newest
//! one is kept apart, with its key outside the database. Who can edit the database alone cannot
//! change, remove, add or move a row unseen. Putting back an older copy of the whole state directory
//! is beyond what a chain on the same disk can show.

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

/// Something that happened, to be put on record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When, by the wall clock.
    pub time_ms: i64,
    /// Who.
    pub actor: String,
    /// Through which door.
    pub door: String,
    /// What.
    pub action: String,
    /// In which sandbox.
    pub sandbox: Option<String>,
    /// In which run.
    pub run: Option<String>,
    /// The rest.
    pub detail: Value,
    /// Whose; `None` for the namespace `default`.
    pub namespace: Option<String>,
}

/// An entry on record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditRow {
    /// Its place: 1, 2, 3 and so on, without gaps.
    pub seq: u64,
    /// When, by the wall clock.
    pub time_ms: i64,
    /// Who.
    pub actor: String,
    /// Through which door.
    pub door: String,
    /// What.
    pub action: String,
    /// In which sandbox.
    pub sandbox: Option<String>,
    /// In which run.
    pub run: Option<String>,
    /// The rest.
    pub detail: Value,
    /// Whose; `None` for the namespace `default`.
    pub namespace: Option<String>,
    /// Hash of the row before, in hexadecimal; zeros for the first.
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
    /// At most so many, 1 to 500.
    pub limit: u32,
    /// Only rows before this place.
    pub before: Option<u64>,
}

impl Default for AuditFilter {
    fn default() -> Self {
        Self { namespace: None, action: None, sandbox: None, limit: 100, before: None }
    }
}

/// The end of the chain: where the next row goes, and what it is chained to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    pub(crate) hash: Hash,
    /// Damage seen when the store was opened. It stays in the head for good: going on would otherwise
    /// give a fresh seal to what was broken.
    pub(crate) taint: Option<AuditFault>,
}

/// The chain as the writer holds it.
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

/// The key, ready to seal.
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

    /// The code that seals a head.
    pub(crate) fn seal(&self, seq: u64, hash: &[u8], taint: Option<&str>) -> Hash {
        self.sealing(seq, hash, taint).finalize().into_bytes().into()
    }

    /// Whether a code seals a head. Compares in constant time.
    pub(crate) fn seals(&self, seq: u64, hash: &[u8], taint: Option<&str>, code: &[u8]) -> bool {
        self.sealing(seq, hash, taint).verify_slice(code).is_ok()
    }

    fn sealing(&self, seq: u64, hash: &[u8], taint: Option<&str>) -> Hmac<Sha256> {
        let mut code = self.prepared.clone();
        encode::head(seq, hash, taint, |part| code.update(part));
        code
    }
}
