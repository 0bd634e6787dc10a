//! The counters of one grant: connections, bytes and dials, its byte limit and its rate limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::accounting::connection_log::ConnectionResult;
use crate::accounting::rate_limit::RateLimit;
use crate::accounting::traffic_totals::TrafficTotals;
use crate::relay::splice::THREADS_OF_ONE;

/// Traffic of a grant, or of a whole gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficCount {
    /// Connections made.
    pub connections: u64,
    /// How many of those are open.
    pub open: u64,
    /// Bytes from the sandbox.
    pub sent: u64,
    /// Bytes to the sandbox.
    pub received: u64,
    /// Dials: name resolution and connect.
    pub dials: u64,
    /// Total duration of the dials.
    pub dial_time: Duration,
}

/// The counters of a grant.
#[derive(Debug)]
pub(crate) struct GrantCounters {
    connections: AtomicU64,
    open: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    dials: AtomicU64,
    dial_micros: AtomicU64,
    /// Bytes of both directions, including those reserved, if there is a byte limit.
    spent: AtomicU64,
    /// The totals of all gates.
    totals: Arc<TrafficTotals>,
    total_bytes: Option<u64>,
    pub(crate) rate_limit: Option<RateLimit>,
    /// Limits the splice threads of the grant.
    pub(crate) threads: Arc<Semaphore>,
}

/// The direction of bytes, from the sandbox's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

impl GrantCounters {
    pub(crate) fn new(
        total_bytes: Option<u64>,
        bytes_per_second: Option<u64>,
        totals: Arc<TrafficTotals>,
    ) -> Self {
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
            rate_limit: bytes_per_second.map(RateLimit::new),
            threads: Arc::new(Semaphore::new(THREADS_OF_ONE)),
        }
    }

    /// Counts a connection as open until the result is dropped.
    pub(crate) fn opened(&self) -> OpenConnection<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        self.totals.opened();
        OpenConnection(self)
    }

    /// Counts a dial.
    pub(crate) fn dialed(&self, took: Duration) {
        self.dials.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.dial_micros.fetch_add(micros, Ordering::Relaxed);
        self.totals.dialed(took);
    }

    /// Counts the result of a request inside an open connection.
    pub(crate) fn ended(&self, result: &ConnectionResult) {
        self.totals.ended(result);
    }

    /// Counts bytes before they are sent: as many as the byte limit allows, across all connections. The
    /// others must not be sent.
    pub(crate) fn claim(&self, direction: Direction, bytes: usize) -> usize {
        let claimed = self.reserve(bytes);
        self.count_moved(direction, claimed);
        claimed
    }

    /// Reserves bytes that are about to be sent, as many as the byte limit allows.
    pub(crate) fn reserve(&self, bytes: usize) -> usize {
        let Some(total) = self.total_bytes else { return bytes };
        let most = |spent: u64| total.saturating_sub(spent).min(bytes as u64);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let before = self.spent.fetch_update(set, fetch, |spent| Some(spent + most(spent)));
        // The closure always returns a value, so this is never an error.
        let (Ok(before) | Err(before)) = before;
        usize::try_from(most(before)).unwrap_or(bytes)
    }

    /// Releases reserved bytes that were not sent.
    pub(crate) fn release(&self, bytes: usize) {
        if self.total_bytes.is_some() {
            self.spent.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Counts reserved bytes that were sent.
    pub(crate) fn count_moved(&self, direction: Direction, bytes: usize) {
        let counter = match direction {
            Direction::Sent => &self.sent,
            Direction::Received => &self.received,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        self.totals.moved(direction, bytes as u64);
    }

    pub(crate) fn count(&self) -> TrafficCount {
        TrafficCount {
            connections: self.connections.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            dials: self.dials.load(Ordering::Relaxed),
            dial_time: Duration::from_micros(self.dial_micros.load(Ordering::Relaxed)),
        }
    }
}

/// An open connection, as a counter.
#[derive(Debug)]
pub(crate) struct OpenConnection<'t>(&'t GrantCounters);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.totals.closed();
    }
}

#[cfg(test)]
#[path = "grant_counters_tests.rs"]
mod tests;
