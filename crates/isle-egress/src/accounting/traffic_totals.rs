//! Traffic of a gate, and of all gates of a daemon together. Counters only increase: removed gates and
//! revoked grants stay counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::accounting::connection_log::ConnectionResult;
use crate::accounting::grant_counters::{Direction, TrafficCount};

/// Histogram buckets of the dial duration: upper bounds in seconds.
pub const DIAL_TIMES: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// Traffic counters.
#[derive(Debug, Default)]
pub struct TrafficTotals {
    connections: AtomicU64,
    open: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    denied: AtomicU64,
    rest: Mutex<Rest>,
    /// The totals that this is part of.
    whole: Option<Arc<TrafficTotals>>,
}

/// Traffic up to one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficSummary {
    /// Connections made.
    pub connections: u64,
    /// Bytes from the sandbox.
    pub sent: u64,
    /// Bytes to the sandbox.
    pub received: u64,
    /// Denied lookups, connections and requests.
    pub denied: u64,
}

impl TrafficSummary {
    /// Traffic since an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            connections: self.connections.saturating_sub(earlier.connections),
            sent: self.sent.saturating_sub(earlier.sent),
            received: self.received.saturating_sub(earlier.received),
            denied: self.denied.saturating_sub(earlier.denied),
        }
    }
}

#[derive(Debug, Default, Clone)]
struct Rest {
    denied: BTreeMap<&'static str, u64>,
    failed: u64,
    dialed: DialTimes,
}

/// Duration of dials: name resolution and connect.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct DialTimes {
    /// Dials in each bucket of [`DIAL_TIMES`], and above the last one.
    pub counts: [u64; DIAL_TIMES.len() + 1],
    /// Total duration.
    pub sum: Duration,
}

/// All totals at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// Connections and bytes.
    pub count: TrafficCount,
    /// Denials, by [`crate::Reason`].
    pub denied: BTreeMap<&'static str, u64>,
    /// Granted connections that failed.
    pub failed: u64,
    /// Duration of dials: name resolution and connect.
    pub dialed: DialTimes,
}

impl TrafficTotals {
    /// Totals that also count in `whole`.
    #[must_use]
    pub fn within(whole: Arc<Self>) -> Self {
        Self { whole: Some(whole), ..Self::default() }
    }

    fn rest(&self) -> std::sync::MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.opened();
        }
    }

    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.closed();
        }
    }

    pub(crate) fn moved(&self, direction: Direction, bytes: u64) {
        let counter = match direction {
            Direction::Sent => &self.sent,
            Direction::Received => &self.received,
        };
        counter.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.moved(direction, bytes);
        }
    }

    pub(crate) fn dialed(&self, took: Duration) {
        let mut rest = self.rest();
        let range = DIAL_TIMES.partition_point(|bound| *bound < took.as_secs_f64());
        rest.dialed.counts[range] += 1;
        rest.dialed.sum += took;
        drop(rest);
        if let Some(whole) = &self.whole {
            whole.dialed(took);
        }
    }

    pub(crate) fn ended(&self, result: &ConnectionResult) {
        match result {
            ConnectionResult::Closed { .. } => {}
            ConnectionResult::Denied(denial) => {
                self.denied.fetch_add(1, Ordering::Relaxed);
                *self.rest().denied.entry(denial.reason.as_str()).or_default() += 1;
            }
            ConnectionResult::Failed(_) => self.rest().failed += 1,
        }
        if let Some(whole) = &self.whole {
            whole.ended(result);
        }
    }

    /// Traffic so far, without locking.
    #[must_use]
    pub fn summary(&self) -> TrafficSummary {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TrafficSummary {
            connections: load(&self.connections),
            sent: load(&self.sent),
            received: load(&self.received),
            denied: load(&self.denied),
        }
    }

    /// All totals, as of now.
    #[must_use]
    pub fn now(&self) -> Traffic {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Rest { denied, failed, dialed } = self.rest().clone();
        let count = TrafficCount {
            connections: load(&self.connections),
            open: load(&self.open),
            sent: load(&self.sent),
            received: load(&self.received),
            dials: dialed.counts.iter().sum(),
            dial_time: dialed.sum,
        };
        Traffic { count, denied, failed, dialed }
    }
}

#[cfg(test)]
#[path = "traffic_totals_tests.rs"]
mod tests;
