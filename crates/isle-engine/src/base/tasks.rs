//! Tasks in the background, and when they end.
//!
//! Owns the tracker of all tasks that a stopping daemon waits for, the flag that says that it is stopping, and
//! two tokens:
//!
//! - `leaving` fires when everything has to end that cannot continue without the daemon: one-shots and
//!   interactive commands. Their callers still hear how they ended.
//! - `halted` fires later, when the daemon stops following what continues without it: runs in named sandboxes
//!   keep running, their records stay open and the next daemon takes them over.
//!
//! Work that must be finished once it was begun (making, replacing, destroying a sandbox) runs in a task of its
//! own, so that a caller who disconnects does not leave half of it behind. Work that may be lost at any moment
//! is spawned without the tracker. `engine::shutdown` is the only caller of [`Tasks::begin_stopping`].

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::pipeline::stopping;
use isle_core::Result;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    leaving: CancellationToken,
    halted: CancellationToken,
    stopping: AtomicBool,
}

impl Tasks {
    /// Runs something to its end, also when its caller goes away.
    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.tracker.spawn(work)
    }

    /// The same from outside a task; when there is no runtime, it is not done.
    pub(crate) fn spawn_if_possible(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.tracker.spawn_on(work, &runtime);
        }
    }

    /// Fires when what cannot continue without the daemon ends.
    pub(crate) fn leaving(&self) -> &CancellationToken {
        &self.leaving
    }

    /// Fires when the daemon no longer follows what continues without it.
    pub(crate) fn halted(&self) -> &CancellationToken {
        &self.halted
    }

    /// Says that the daemon stops; `false` when it was said before.
    pub(crate) fn begin_stopping(&self) -> bool {
        let first = !self.stopping.swap(true, Ordering::AcqRel);
        if first {
            self.tracker.close();
        }
        first
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Nothing new is made while the daemon stops.
    pub(crate) fn refuse_when_stopping(&self) -> Result<()> {
        if self.is_stopping() { Err(stopping()) } else { Ok(()) }
    }

    /// Resolves when no task is left.
    pub(crate) async fn finished(&self) {
        self.tracker.wait().await;
    }
}
