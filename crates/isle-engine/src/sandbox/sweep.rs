//! The sweeper: removes sandboxes whose time is up. It looks at what is in memory, so a pass costs next to
//! nothing, and it goes on with each until the backend says that it is gone. What a daemon that dies has
//! begun is finished by the next one, since removing is on record before it begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::{StreamExt, stream};
use isle_fail::Point;

use super::Sandbox;
use super::Sandboxes;
use super::lease::Over;
use crate::events::EventKind;
use crate::journal::{Actor, Audit};
use crate::run::Ending;
use isle_core::backend::Keep;

/// Sandboxes removed side by side.
const AT_ONCE: usize = 4;

/// What the sweeper has done so far.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    passes: AtomicU64,
    expired: AtomicU64,
    idle: AtomicU64,
    failures: AtomicU64,
    last_look_us: AtomicU64,
}

/// The same, to be shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Swept {
    /// Times it looked.
    pub(crate) passes: u64,
    /// Sandboxes removed because their TTL had passed.
    pub(crate) expired: u64,
    /// Sandboxes removed because nobody used them.
    pub(crate) idle: u64,
    /// Removals that failed and are tried again.
    pub(crate) failures: u64,
    /// How long the last look at all sandboxes took, without the removals.
    pub(crate) last_look_us: u64,
}

impl Sweeper {
    pub(crate) fn counts(&self) -> Swept {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Swept {
            passes: read(&self.passes),
            expired: read(&self.expired),
            idle: read(&self.idle),
            failures: read(&self.failures),
            last_look_us: read(&self.last_look_us),
        }
    }
}

impl Sandboxes {
    /// Looks every so often, as long as the engine lives.
    pub(crate) fn sweep_regularly(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        let interval = self.config.deadlines.sweep_interval.0;
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let Some(sandboxes) = weak.upgrade() else { return };
                if sandboxes.tasks.is_stopping() {
                    return;
                }
                sandboxes.sweep().await;
            }
        });
    }

    /// One pass.
    async fn sweep(self: &Arc<Self>) {
        let began = Instant::now();
        let due = self.look_for_due();
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.sweeper.last_look_us.store(took, Ordering::Relaxed);
        stream::iter(due)
            .for_each_concurrent(AT_ONCE, |sandbox| {
                let sandboxes = Arc::clone(self);
                // In a task of its own, which a stopping engine waits for.
                let ending = self.tasks.spawn(async move { sandboxes.expire(&sandbox).await });
                async move {
                    if let Err(error) = ending.await {
                        tracing::warn!(%error, "removing a sandbox whose time is up ended early");
                    }
                }
            })
            .await;
        self.sweeper.passes.fetch_add(1, Ordering::Relaxed);
    }

    /// Those whose time is up. What changed about the others is written down on the way, for a daemon that
    /// comes after a crash.
    fn look_for_due(&self) -> Vec<Arc<Sandbox>> {
        let mut due = Vec::new();
        let mut used = Vec::new();
        self.fleet.each(|sandbox| {
            if sandbox.lease.over().is_some() {
                due.push(Arc::clone(sandbox));
            } else if sandbox.terms.idle.is_some() && sandbox.lease.take_unrecorded() {
                used.push(Arc::clone(sandbox));
            }
        });
        for sandbox in used {
            if let Err(error) = self.journal.sandbox_last_used(&sandbox) {
                tracing::debug!(sandbox = %sandbox.name, %error, "the time of last use was not recorded");
                sandbox.lease.set_unrecorded();
            }
            isle_fail::pass(Point::SweepUseRecorded);
        }
        due
    }

    /// Removes one, unless somebody was faster: used it, extended it, or removed it.
    async fn expire(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        let gate = self.fleet.gate(&sandbox.address());
        let _held = gate.lock().await;
        if self.fleet.get(&sandbox.address()).is_none_or(|present| present.id != sandbox.id) {
            return;
        }
        let Some(over) = sandbox.lease.close() else { return };
        for run in self.runs.running_in(&sandbox.id) {
            run.intend(Ending::Expired);
        }
        let audit = Audit::lifecycle(&Actor::engine(), "expire_sandbox", sandbox, over.as_str());
        match self.remove_incarnation(sandbox, Keep::Workspace, &audit).await {
            Ok(()) => {
                let count = match over {
                    Over::Ttl => &self.sweeper.expired,
                    Over::Idle => &self.sweeper.idle,
                };
                count.fetch_add(1, Ordering::Relaxed);
                self.notifier.sandbox(EventKind::SandboxExpired, sandbox, over.as_str());
                tracing::info!(sandbox = %sandbox.name, why = over.as_str(), "removed a sandbox");
            }
            Err(error) => {
                self.sweeper.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(sandbox = %sandbox.name, %error, "a sandbox whose time is up could not be removed; the next pass tries again");
            }
        }
    }
}
