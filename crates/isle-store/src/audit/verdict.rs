//! The result of verifying the chain.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditVerdict {
    /// Number of rows: all, or those up to the fault.
    pub rows: u64,
    /// How many of them were verified now: all, or those since an earlier verification.
    pub checked: u64,
    /// Hash of the newest row, in hexadecimal. Stored elsewhere, it also reveals an older copy of the whole
    /// state directory.
    pub head: String,
    /// The state of the key file.
    pub key: AuditKey,
    /// The first fault.
    pub fault: Option<AuditFault>,
}

impl AuditVerdict {
    /// Whether there is no fault.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.fault.is_none()
    }
}

impl fmt::Display for AuditVerdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            None => write!(formatter, "the audit chain is intact: {} rows", self.rows),
            Some(fault) => write!(formatter, "the audit chain is broken: {fault}"),
        }
    }
}

/// The key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditKey {
    /// The key that the head is sealed with.
    Present,
    /// Missing.
    Missing,
    /// Another key.
    Changed,
}

/// Where the chain is broken, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFault {
    /// The sequence number of the first fault.
    pub seq: u64,
    /// The fault.
    #[serde(flatten)]
    pub problem: AuditProblem,
}

/// A fault of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum AuditProblem {
    /// The row was changed.
    Edited,
    /// The row is missing.
    Removed,
    /// The row was written with another sequence number.
    Reordered {
        /// That sequence number.
        written_as: u64,
    },
    /// The row was not written by Isle.
    Inserted,
    /// The row, or rows up to it, were rewritten consistently, but do not match the head.
    Rewritten,
    /// The head was changed without the key.
    HeadForged,
    /// The head is missing.
    HeadMissing,
    /// The key was missing, so the rows up to here cannot be verified.
    KeyMissing,
    /// The key was replaced, so the rows up to here cannot be verified.
    KeyChanged,
}

impl fmt::Display for AuditFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seq = self.seq;
        match &self.problem {
            AuditProblem::Edited => write!(formatter, "row {seq} was edited"),
            AuditProblem::Removed => write!(formatter, "row {seq} was removed"),
            AuditProblem::Reordered { written_as } => {
                write!(formatter, "row {seq} was moved: it was written as row {written_as}")
            }
            AuditProblem::Inserted => write!(formatter, "row {seq} was inserted"),
            AuditProblem::Rewritten => {
                write!(formatter, "row {seq} does not match the head: it or rows before it were rewritten")
            }
            AuditProblem::HeadForged => {
                write!(formatter, "the head was changed without the key, with {seq} rows in the chain")
            }
            AuditProblem::HeadMissing => {
                write!(formatter, "the head was removed, with {seq} rows left in the chain")
            }
            AuditProblem::KeyMissing => {
                write!(formatter, "the key file was missing: the first {seq} rows cannot be verified")
            }
            AuditProblem::KeyChanged => {
                write!(formatter, "the key file was replaced: the first {seq} rows cannot be verified")
            }
        }
    }
}
