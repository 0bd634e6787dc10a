//! Long work in short slices: the agent has one thread, and other streams must not wait for a search.

use std::time::{Duration, Instant};

/// Short enough not to be noticed.
const SLICE: Duration = Duration::from_millis(4);

/// One slice.
pub(crate) struct TimeSlice(Instant);

impl TimeSlice {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.elapsed() >= SLICE
    }

    /// Yields to other tasks, then starts the next slice. The caller must not hold an `As`.
    pub(crate) async fn end(&mut self) {
        tokio::task::yield_now().await;
        *self = Self::begin();
    }
}
