//! What went through a gate, and through all gates of a daemon together. Only ever added to: a gate that is
//! gone stays counted, and so does a grant that was taken back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::account::{Count, Direction, Fate};

/// Upper bounds of ranges of time, in seconds.
pub const DIAL_TIMES: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// See the module.
#[derive(Debug, Default)]
pub struct Totals {
    connections: AtomicU64,
    open: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    denied: AtomicU64,
    rest: Mutex<Rest>,
    /// What counts the same, and more.
    whole: Option<Arc<Totals>>,
}

/// What went through until one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Connections that were made.
    pub connections: u64,
    /// Bytes from the sandbox.
    pub sent: u64,
    /// Bytes to the sandbox.
    pub received: u64,
    /// Names, connections and requests that were denied.
    pub denied: u64,
}

impl Passed {
    /// What came after an earlier moment.
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

/// How long it took to resolve and connect.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct DialTimes {
    /// How often it was in each range of [`DIAL_TIMES`], and above all of them.
    pub counts: [u64; DIAL_TIMES.len() + 1],
    /// All of it together.
    pub sum: Duration,
}

/// The totals at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// Connections and bytes.
    pub count: Count,
    /// Denials, by [`crate::Reason`].
    pub denied: BTreeMap<&'static str, u64>,
    /// Granted connections that failed.
    pub failed: u64,
    /// How long it took to resolve and connect.
    pub dialed: DialTimes,
}

impl Totals {
    /// Counts for itself what counts in a whole, too.
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

    pub(crate) fn ended(&self, fate: &Fate) {
        match fate {
            Fate::Closed { .. } => {}
            Fate::Denied(denial) => {
                self.denied.fetch_add(1, Ordering::Relaxed);
                *self.rest().denied.entry(denial.reason.as_str()).or_default() += 1;
            }
            Fate::Failed(_) => self.rest().failed += 1,
        }
        if let Some(whole) = &self.whole {
            whole.ended(fate);
        }
    }

    /// What went through so far, without a look at the rest.
    #[must_use]
    pub fn passed(&self) -> Passed {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Passed {
            connections: load(&self.connections),
            sent: load(&self.sent),
            received: load(&self.received),
            denied: load(&self.denied),
        }
    }

    /// All of it, as it is now.
    #[must_use]
    pub fn now(&self) -> Traffic {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Rest { denied, failed, dialed } = self.rest().clone();
        let count = Count {
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
mod tests {
    use super::*;
    use crate::denial::{Denial, Reason};

    #[test]
    fn a_part_counts_for_itself_and_in_the_whole() {
        let whole = Arc::new(Totals::default());
        let [one, two] = [(); 2].map(|()| Totals::within(Arc::clone(&whole)));
        one.opened();
        one.moved(Direction::Sent, 5);
        let before = one.passed();
        one.moved(Direction::Received, 7);
        one.closed();
        one.ended(&Fate::Denied(Denial::new("x.example", Reason::NotGranted)));
        two.opened();
        two.dialed(Duration::from_millis(1));
        let after = Passed { connections: 0, sent: 0, received: 7, denied: 1 };
        assert_eq!(one.passed().since(before), after);
        assert_eq!(whole.passed(), Passed { connections: 2, sent: 5, received: 7, denied: 1 });
        let Traffic { count, denied, dialed, .. } = whole.now();
        assert_eq!((count.open, denied.len(), dialed.counts[0]), (1, 1, 1));
    }

    #[test]
    fn everything_is_counted_once_and_nothing_is_taken_back_but_what_is_open() {
        let totals = Totals::default();
        totals.opened();
        totals.opened();
        totals.closed();
        totals.moved(Direction::Sent, 5);
        totals.moved(Direction::Received, 7);
        totals.dialed(Duration::from_millis(1));
        totals.dialed(Duration::from_secs(60));
        for reason in [Reason::NotGranted, Reason::NotGranted, Reason::TooMany] {
            totals.ended(&Fate::Denied(Denial::new("x.example", reason)));
        }
        totals.ended(&Fate::Failed("gone".into()));
        totals.ended(&Fate::Closed { sent: 1, received: 1 });
        let Traffic { count, denied, failed, dialed } = totals.now();
        assert_eq!((count.connections, count.open, count.sent, count.received), (2, 1, 5, 7));
        assert_eq!(denied.values().copied().collect::<Vec<_>>().iter().sum::<u64>(), 3);
        assert_eq!(denied[Reason::NotGranted.as_str()], 2);
        assert_eq!(failed, 1);
        assert_eq!((dialed.counts[0], dialed.counts[DIAL_TIMES.len()]), (1, 1));
        assert_eq!(dialed.sum, Duration::from_millis(60_001));
    }
}
