//! Requests of one connection that are cancelled before they are answered (HTTP/2 rapid reset). Cancelling is
//! free for a program and costs the gate a request, so the number is limited: answered requests restore it,
//! and a connection that has used it up is closed.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Notify;

/// How many more requests may be cancelled than answered.
const MOST: u32 = 256;

/// The limit on cancelled requests of a connection.
#[derive(Debug)]
pub(crate) struct CancelledRequests {
    left: AtomicU32,
    used_up: Notify,
}

impl Default for CancelledRequests {
    fn default() -> Self {
        Self { left: AtomicU32::new(MOST), used_up: Notify::new() }
    }
}

impl CancelledRequests {
    /// A request begins. If the result is dropped early, it was cancelled.
    pub(crate) fn begin(&self) -> Answering<'_> {
        Answering { cancels: self, answered: false }
    }

    /// Whether too many were cancelled, so that no more requests are forwarded.
    pub(crate) fn are_used_up(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Resolves when too many were cancelled.
    pub(crate) async fn used_up(&self) {
        self.used_up.notified().await;
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Answering<'c> {
    cancels: &'c CancelledRequests,
    answered: bool,
}

impl Answering<'_> {
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let change =
            |left: u32| Some(if self.answered { (left + 1).min(MOST) } else { left.saturating_sub(1) });
        let before = self.cancels.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        if !self.answered && before == Ok(1) {
            self.cancels.used_up.notify_one();
        }
    }
}
