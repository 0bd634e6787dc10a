//! Stopping: no new work, what is under way is recorded, backends let go. Named sandboxes and the
//! runs in them live on; the next start finds them. What was made ready and never used goes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Inner;

impl Inner {
    pub(super) async fn stop(self: &Arc<Self>, within: Duration) {
        if !self.tasks.begin_stopping() {
            return;
        }
        let until = Instant::now() + within;
        self.admission.close();
        for sandbox in self.fleet.named() {
            if let Err(error) = self.journal.sandbox_last_used(&sandbox) {
                tracing::debug!(sandbox = %sandbox.name, %error, "the time of last use was not recorded");
            }
        }
        // What needs longer than half of the time is let go: in named sandboxes it runs on, its record
        // open and its output with the agent; one-shots and interactive commands end.
        let half = Instant::now() + within / 2;
        if timeout_at(half, self.tasks.finished()).await.is_err() {
            tracing::info!(
                running = self.live.running(),
                "commands in named sandboxes run on without the daemon"
            );
            self.tasks.leaving().cancel();
            self.tasks.halted().cancel();
            if timeout_at(until, self.tasks.finished()).await.is_err() {
                tracing::warn!("some work did not end in time; the next start cleans up");
            }
        }
        if timeout_at(until, self.sandboxes.remove_spares()).await.is_err() {
            tracing::warn!("a sandbox that nobody used was not removed in time; the next start finds it");
        }
        self.webhooks.end();
        self.events.flush();
        for backend in self.backends.all() {
            let left = until.saturating_duration_since(Instant::now());
            if timeout_at(until, backend.shutdown(left)).await.is_err() {
                tracing::warn!(backend = %backend.name(), "the backend did not shut down in time");
            }
        }
    }
}
