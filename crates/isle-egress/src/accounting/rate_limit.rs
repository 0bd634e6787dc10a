//! Bytes per second, shared by all connections of a grant.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// The burst that is allowed after a pause, as time.
const BURST: Duration = Duration::from_millis(250);

/// A rate limit.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes_per_second: u64,
    /// When all bytes sent so far fit the rate.
    paid: Mutex<Instant>,
}

impl RateLimit {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), paid: Mutex::new(Instant::now()) }
    }

    /// The most to move at once, so that turns come often enough.
    pub(crate) fn portion(&self) -> usize {
        usize::try_from(self.bytes_per_second / 8).unwrap_or(usize::MAX).max(1)
    }

    /// Waits until `count` bytes may go.
    pub(crate) async fn take(&self, count: usize) {
        tokio::time::sleep_until(self.reserve(count)).await;
    }

    /// When `count` bytes that have gone are paid for, if that is not yet.
    pub(crate) fn after(&self, count: usize) -> Option<Instant> {
        let until = self.reserve(count);
        (until > Instant::now()).then_some(until)
    }

    fn reserve(&self, count: usize) -> Instant {
        let mut paid = self.paid.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.advance(&mut paid, count, Instant::now())
    }

    fn advance(&self, paid: &mut Instant, count: usize, now: Instant) -> Instant {
        let cost = Duration::from_secs_f64(count as f64 / self.bytes_per_second as f64);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let start = (*paid).max(earliest);
        *paid = start + cost;
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_paid_for_with_time() {
        let rate_limit = RateLimit::new(1000);
        let now = Instant::now() + Duration::from_secs(10);
        let mut paid = now;
        assert_eq!(rate_limit.advance(&mut paid, 500, now), now);
        assert_eq!(rate_limit.advance(&mut paid, 500, now), now + Duration::from_millis(500));
        // A long silence buys no more than a burst.
        let later = now + Duration::from_secs(60);
        assert_eq!(rate_limit.advance(&mut paid, 1, later), later - BURST);
    }
}
