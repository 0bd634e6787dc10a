//! What a check of the chain found.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The result of checking the whole chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditVerdict {
    /// Rows that were looked at: all of them, or those up to the fault.
    pub rows: u64,
    /// Hash of the newest row, in hexadecimal. Noted down elsewhere, it also shows an older copy of
    /// the whole state directory being put back.
    pub head: String,
    /// The key that seals the head, as it is on disk now.
    pub key: AuditKey,
    /// The first thing that is wrong.
    pub fault: Option<AuditFault>,
}

impl AuditVerdict {
    /// Whether nothing is wrong.
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
    /// There, and the one the head is sealed with.
    Present,
    /// Gone.
    Missing,
    /// There, but another one.
    Changed,
}

/// Where the chain is broken, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFault {
    /// The first place that is wrong.
    pub seq: u64,
    /// What is wrong there.
    #[serde(flatten)]
    pub problem: AuditProblem,
}

/// What is wrong with the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum AuditProblem {
    /// The row is not what was written.
    Edited,
    /// The row is gone.
    Removed,
    /// The row was written at another place.
    Reordered {
        /// That place.
        written_as: u64,
    },
    /// The row was not written by Isle.
    Inserted,
    /// The row, or the rows up to it, were rewritten so that they fit one another but not the head.
    Rewritten,
    /// The head was changed by something that does not have the key.
    HeadForged,
    /// The head is gone.
    HeadMissing,
    /// The key was gone, so nothing vouches for the rows up to here.
    KeyMissing,
    /// The key was replaced, so nothing vouches for the rows up to here.
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
                write!(formatter, "the key file was missing: nothing vouches for the {seq} rows up to then")
            }
            AuditProblem::KeyChanged => {
                write!(formatter, "the key file was replaced: nothing vouches for the {seq} rows up to then")
            }
        }
    }
}
