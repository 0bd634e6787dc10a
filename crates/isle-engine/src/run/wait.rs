//! Waiting for a run: with an end, with signs of life, and without polling.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::pump::end_tree;
use super::{Ending, Run};
use crate::agent::unresponsive;
use crate::context::{CallContext, Progress};
use crate::pipeline::cancelled;
use isle_core::Result;

/// The longest silence while somebody waits.
const REPORT_EVERY: Duration = Duration::from_secs(4);
/// How long a cancelled run may take to be reported as ended.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// What becomes of the run when the caller goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnCancel {
    /// It is killed: this call started it.
    Kill,
    /// It goes on: this call only looked at it.
    Leave,
}

impl Run {
    /// Waits at most `wait` for the end.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        context: &CallContext,
        wait: Duration,
        on_cancel: OnCancel,
    ) -> Result<()> {
        let began = Instant::now();
        self.awaited_by(context);
        let mut finish = self.finish.subscribe();
        if finish.borrow().is_some() {
            return Ok(());
        }
        let until = began + wait;
        let mut next_report = began + REPORT_EVERY;
        loop {
            let wake = if context.progress.is_some() { until.min(next_report) } else { until };
            let cancelled = tokio::select! {
                biased;
                // An error means the sender is gone, which a run in our hands cannot be.
                _ = finish.wait_for(Option::is_some) => return Ok(()),
                () = context.cancelled.cancelled() => true,
                () = self.sandbox.falls_silent() => {
                    return Err(unresponsive().detail("run_id", self.id.to_string()));
                }
                () = tokio::time::sleep_until(wake) => false,
            };
            if cancelled {
                return self.abandoned(on_cancel, &mut finish).await;
            }
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            next_report = now + REPORT_EVERY;
            self.report_progress(context, began);
        }
    }

    /// Waits at most `wait` until `more` says there is something new, or the end.
    pub(crate) async fn wait_for_output(
        &self,
        context: &CallContext,
        wait: Duration,
        more: impl Fn(&Self) -> bool,
    ) -> Result<()> {
        let until = Instant::now() + wait;
        let mut newest = self.newest.subscribe();
        loop {
            newest.borrow_and_update();
            if self.state().is_final() || more(self) {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = context.cancelled.cancelled() => return Err(cancelled()),
                changed = newest.changed() => if changed.is_err() { return Ok(()) },
                () = tokio::time::sleep_until(until) => return Ok(()),
            }
        }
    }

    fn report_progress(&self, context: &CallContext, began: Instant) {
        let Some(sink) = &context.progress else { return };
        let elapsed_seconds = began.elapsed().as_secs_f64();
        let message = match self.last_line() {
            Some(line) => line,
            None if self.is_queued() => {
                format!("waiting for its turn for {elapsed_seconds:.0} s: another run has the lock")
            }
            None => format!("running for {elapsed_seconds:.0} s, no output yet"),
        };
        sink(Progress { progress: elapsed_seconds, total: None, message });
    }

    async fn abandoned(
        self: &Arc<Self>,
        on_cancel: OnCancel,
        finish: &mut tokio::sync::watch::Receiver<Option<Arc<super::Finish>>>,
    ) -> Result<()> {
        if on_cancel == OnCancel::Kill {
            self.intend(Ending::Cancelled);
            // Who waits for its turn has heard it and leaves the line.
            if !self.is_queued() {
                end_tree(self).await;
            }
            // Ending a tree is quick; a caller who no longer waits need not be kept longer than this.
            tokio::time::timeout(LAST_WORDS, finish.wait_for(Option::is_some)).await.ok();
        }
        Err(cancelled().detail("run_id", self.id.to_string()))
    }
}
