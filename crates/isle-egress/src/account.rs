//! What was used and denied: counts per grant, and the newest entries of a log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::Semaphore;

use crate::bulk::THREADS_OF_ONE;
use crate::denial::Denial;
use crate::grant::GrantId;
use crate::pace::Pace;
use crate::totals::Totals;

/// Entries of the log that are kept.
const KEPT: usize = 256;
/// Different denials that are remembered.
const DENIALS_KEPT: usize = 128;

/// How much went through a grant, or a whole gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Connections that were made.
    pub connections: u64,
    /// Of those, how many are open.
    pub open: u64,
    /// Bytes from the sandbox.
    pub sent: u64,
    /// Bytes to the sandbox.
    pub received: u64,
    /// How often it was resolved and connected.
    pub dials: u64,
    /// How long that took, all together.
    pub dial_time: Duration,
}

/// The counters of a grant.
#[derive(Debug)]
pub(crate) struct Tally {
    connections: AtomicU64,
    open: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    dials: AtomicU64,
    dial_micros: AtomicU64,
    /// Bytes of both ways together, those that are about to go included, where they are bounded.
    spent: AtomicU64,
    /// Of all gates.
    totals: Arc<Totals>,
    total_bytes: Option<u64>,
    pub(crate) pace: Option<Pace>,
    /// Threads that may carry its bulk data.
    pub(crate) threads: Arc<Semaphore>,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

impl Tally {
    pub(crate) fn new(total_bytes: Option<u64>, bytes_per_second: Option<u64>, totals: Arc<Totals>) -> Self {
        Self {
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            dials: AtomicU64::new(0),
            dial_micros: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            totals,
            total_bytes,
            pace: bytes_per_second.map(Pace::new),
            threads: Arc::new(Semaphore::new(THREADS_OF_ONE)),
        }
    }

    /// A connection is open until this is dropped, however it ends.
    pub(crate) fn opened(&self) -> Open<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        self.totals.opened();
        Open(self)
    }

    /// Resolving and connecting took so long.
    pub(crate) fn dialed(&self, took: Duration) {
        self.dials.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.dial_micros.fetch_add(micros, Ordering::Relaxed);
        self.totals.dialed(took);
    }

    /// Something ended inside a connection that goes on.
    pub(crate) fn ended(&self, fate: &Fate) {
        self.totals.ended(fate);
    }

    /// Counts bytes before they go: as many of them as the grant has left, whoever else takes some. The
    /// others may not go.
    pub(crate) fn claim(&self, direction: Direction, bytes: usize) -> usize {
        let claimed = self.reserve(bytes);
        self.count_moved(direction, claimed);
        claimed
    }

    /// Sets bytes apart that are about to go, as many as the grant has left.
    pub(crate) fn reserve(&self, bytes: usize) -> usize {
        let Some(total) = self.total_bytes else { return bytes };
        let most = |spent: u64| total.saturating_sub(spent).min(bytes as u64);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let before = self.spent.fetch_update(set, fetch, |spent| Some(spent + most(spent)));
        // It always gives a new value, so this is never the other one.
        let (Ok(before) | Err(before)) = before;
        usize::try_from(most(before)).unwrap_or(bytes)
    }

    /// Gives back bytes that were set apart and did not go.
    pub(crate) fn release(&self, bytes: usize) {
        if self.total_bytes.is_some() {
            self.spent.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Counts bytes that were set apart and went.
    pub(crate) fn count_moved(&self, direction: Direction, bytes: usize) {
        let counter = match direction {
            Direction::Sent => &self.sent,
            Direction::Received => &self.received,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        self.totals.moved(direction, bytes as u64);
    }

    pub(crate) fn count(&self) -> Count {
        Count {
            connections: self.connections.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            dials: self.dials.load(Ordering::Relaxed),
            dial_time: Duration::from_micros(self.dial_micros.load(Ordering::Relaxed)),
        }
    }
}

/// A connection that is open.
#[derive(Debug)]
pub(crate) struct Open<'t>(&'t Tally);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.totals.closed();
    }
}

/// How a connection, or the asking for one, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It was made and has ended.
    Closed {
        /// Bytes from the sandbox.
        sent: u64,
        /// Bytes to the sandbox.
        received: u64,
    },
    /// It was denied.
    Denied(Denial),
    /// It was granted, and the other side could not be reached or went away.
    Failed(String),
}

/// One entry of the log.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Grows by one with every entry.
    pub sequence: u64,
    /// When it was over.
    pub at: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// `host:port`, or a name that was looked up.
    pub target: String,
    /// The grant it used.
    pub grant: Option<GrantId>,
    /// How it ended.
    pub fate: Fate,
}

/// The log and the counts of a gate.
#[derive(Debug, Clone, Default)]
pub struct Net {
    /// The newest entries, oldest first.
    pub entries: VecDeque<Entry>,
    /// How many entries there have been; the sequence of the newest.
    pub sequence: u64,
    /// Connections that were made and have ended.
    pub connections: u64,
    /// Denials so far.
    pub denied: u64,
    /// Granted connections that failed.
    pub failed: u64,
    denials: VecDeque<(u64, Denial)>,
}

impl Net {
    pub(crate) fn add(&mut self, target: String, grant: Option<GrantId>, took: Duration, fate: Fate) {
        self.sequence += 1;
        match &fate {
            Fate::Denied(denial) => {
                self.denied += 1;
                self.denials.retain(|(_, known)| known != denial);
                if self.denials.len() == DENIALS_KEPT {
                    self.denials.pop_front();
                }
                self.denials.push_back((self.sequence, denial.clone()));
            }
            Fate::Failed(_) => self.failed += 1,
            Fate::Closed { .. } => self.connections += 1,
        }
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        let sequence = self.sequence;
        self.entries.push_back(Entry { sequence, at: SystemTime::now(), took, target, grant, fate });
    }

    /// The different denials after an entry, oldest first.
    #[must_use]
    pub fn denials_after(&self, sequence: u64) -> Vec<Denial> {
        self.denials.iter().filter(|(at, _)| *at > sequence).map(|(_, denial)| denial.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::denial::Reason;

    #[test]
    fn the_log_is_bounded_and_denials_are_told_once() {
        let mut net = Net::default();
        for number in 0..1000 {
            let denial = Denial::new(format!("host{}.example", number % 3), Reason::NotGranted);
            net.add(denial.target.clone(), None, Duration::ZERO, Fate::Denied(denial));
        }
        assert_eq!((net.entries.len(), net.sequence, net.denied), (KEPT, 1000, 1000));
        assert_eq!(net.denials_after(0).len(), 3);
        assert_eq!(net.denials_after(999).len(), 1);
        for number in 0..1000 {
            let denial = Denial::new(format!("other{number}.example"), Reason::NotGranted);
            net.add(denial.target.clone(), None, Duration::ZERO, Fate::Denied(denial));
        }
        assert_eq!(net.denials_after(0).len(), DENIALS_KEPT);
    }

    #[test]
    fn bytes_are_spent_until_there_are_none_left() {
        let tally = Tally::new(Some(10), None, Arc::default());
        assert_eq!(tally.claim(Direction::Sent, 6), 6);
        assert_eq!(tally.reserve(3), 3);
        assert_eq!(tally.claim(Direction::Received, 4), 1);
        assert_eq!(tally.claim(Direction::Sent, 1), 0);
        tally.release(3);
        assert_eq!(tally.claim(Direction::Received, 4), 3);
        assert_eq!((tally.count().sent, tally.count().received), (6, 4));
        assert_eq!(Tally::new(None, None, Arc::default()).claim(Direction::Sent, usize::MAX), usize::MAX);
    }
}
