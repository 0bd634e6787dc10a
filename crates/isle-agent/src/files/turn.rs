//! Long work in short slices: the agent has one thread, and commands must not wait for a search.

use std::time::{Duration, Instant};

/// As long as nobody notices.
const SLICE: Duration = Duration::from_millis(4);

/// One slice.
pub(crate) struct Turn(Instant);

impl Turn {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.elapsed() >= SLICE
    }

    /// Lets others have a turn, then begins the next. The caller has put off whose rights it holds.
    pub(crate) async fn pass(&mut self) {
        tokio::task::yield_now().await;
        *self = Self::begin();
    }
}
