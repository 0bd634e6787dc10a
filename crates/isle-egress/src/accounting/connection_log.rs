//! The log of a sandbox's connections and denials: the newest entries, and how many there were.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use crate::policy::denial::Denial;
use crate::policy::grant::GrantId;

/// Maximum number of log entries.
const KEPT: usize = 256;
/// Maximum number of distinct denials.
const DENIALS_KEPT: usize = 128;

/// The result of a connection or a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionResult {
    /// It was made and closed.
    Closed {
        /// Bytes from the sandbox.
        sent: u64,
        /// Bytes to the sandbox.
        received: u64,
    },
    /// It was denied.
    Denied(Denial),
    /// It was granted, but the server could not be reached or the connection broke.
    Failed(String),
}

/// One log entry.
#[derive(Debug, Clone)]
pub struct ConnectionEntry {
    /// Grows by one with every entry.
    pub sequence: u64,
    /// When it ended.
    pub at: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// `host:port`, or a name that was looked up.
    pub target: String,
    /// The grant that allowed it.
    pub grant: Option<GrantId>,
    /// The result.
    pub result: ConnectionResult,
}

/// The connection log of a gate.
#[derive(Debug, Clone, Default)]
pub struct ConnectionLog {
    /// The newest entries, oldest first.
    pub entries: VecDeque<ConnectionEntry>,
    /// Number of entries so far; the sequence number of the newest.
    pub sequence: u64,
    /// Connections that were made and closed.
    pub connections: u64,
    /// Denials so far.
    pub denied: u64,
    /// Granted connections that failed.
    pub failed: u64,
    denials: VecDeque<(u64, Denial)>,
}

impl ConnectionLog {
    pub(crate) fn add(
        &mut self,
        target: String,
        grant: Option<GrantId>,
        took: Duration,
        result: ConnectionResult,
    ) {
        self.sequence += 1;
        match &result {
            ConnectionResult::Denied(denial) => {
                self.denied += 1;
                self.denials.retain(|(_, known)| known != denial);
                if self.denials.len() == DENIALS_KEPT {
                    self.denials.pop_front();
                }
                self.denials.push_back((self.sequence, denial.clone()));
            }
            ConnectionResult::Failed(_) => self.failed += 1,
            ConnectionResult::Closed { .. } => self.connections += 1,
        }
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        let sequence = self.sequence;
        self.entries.push_back(ConnectionEntry {
            sequence,
            at: SystemTime::now(),
            took,
            target,
            grant,
            result,
        });
    }

    /// The distinct denials after an entry, oldest first.
    #[must_use]
    pub fn denials_after(&self, sequence: u64) -> Vec<Denial> {
        self.denials.iter().filter(|(at, _)| *at > sequence).map(|(_, denial)| denial.clone()).collect()
    }
}

#[cfg(test)]
#[path = "connection_log_tests.rs"]
mod tests;
