//! Sandboxes whose agent does not answer: noticed, told of, and killed from outside where something must not
//! go on that only the agent could end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Sandboxes;
use super::{Sandbox, SandboxState};
use crate::agent::{Change, Look};
use crate::events::EventKind;
use isle_core::backend::GuaranteeStatus;

/// How long a limit that only the agent keeps may be without it.
const UNKEPT: Duration = Duration::from_secs(10);
/// How long a call waits for a sandbox that is being reconnected.
const RECONNECTING: Duration = Duration::from_secs(10);

impl Sandboxes {
    /// Looks after all agents for as long as the engine lives.
    pub(crate) fn watch_agents(self: &Arc<Self>) {
        let (weak, attention) = (Arc::downgrade(self), Arc::clone(&self.attention));
        tokio::spawn(async move {
            attention
                .tick(|number| {
                    let sandboxes = weak.upgrade()?;
                    Some(sandboxes.look_at_agents(number))
                })
                .await;
        });
    }

    /// One look; whether anybody waits for any of them.
    fn look_at_agents(self: &Arc<Self>, number: u64) -> bool {
        let mut wanted = false;
        for sandbox in self.fleet.all() {
            let Some(agent) = sandbox.agent.get().filter(|agent| !agent.is_closed()) else { continue };
            let watched = sandbox.has_watched_limits();
            wanted |= watched || agent.liveness().is_wanted() || agent.liveness().is_silent();
            match agent.liveness().look(number, watched) {
                Look::Nothing => {}
                Look::Ping => {
                    let agent = agent.clone();
                    tokio::spawn(async move { agent.ping().await });
                }
                Look::Changed(Change::Silent) => {
                    tracing::warn!(sandbox = %sandbox.name, id = %sandbox.id, "the agent of a sandbox does not answer");
                    *crate::lock(&sandbox.silent_since) = Some(Instant::now());
                    self.notifier.sandbox(
                        EventKind::SandboxUnresponsive,
                        &sandbox,
                        "its agent does not answer",
                    );
                }
                Look::Changed(Change::Answers) => {
                    tracing::info!(sandbox = %sandbox.name, id = %sandbox.id, "the agent of a sandbox answers again");
                    crate::lock(&sandbox.silent_since).take();
                    self.notifier.sandbox(EventKind::SandboxResponsive, &sandbox, "its agent answers again");
                }
            }
            let unkept = crate::lock(&sandbox.silent_since).is_some_and(|since| since.elapsed() >= UNKEPT);
            if unkept && watched && agent.liveness().is_silent() {
                sandbox.kill_from_outside("nobody keeps its limits");
            }
        }
        wanted
    }
}

impl Sandbox {
    /// Whether its agent does not answer, or is not reached yet.
    pub(crate) fn is_unresponsive(&self) -> bool {
        match self.agent.get() {
            Some(agent) => agent.liveness().is_silent(),
            None => self.is_reconnecting(),
        }
    }

    /// Resolves when its agent does not answer any more.
    pub(crate) async fn falls_silent(&self) {
        match self.agent.get() {
            Some(agent) => agent.liveness().falls_silent().await,
            None => std::future::pending().await,
        }
    }

    /// Whether one of its limits is kept by its agent.
    fn has_watched_limits(&self) -> bool {
        *self.watched_limits.get_or_init(|| {
            self.containment().is_some_and(|containment| {
                // Files are counted by the daemon.
                let watched = |key: &str| key.ends_with("_limit") && key != "disk_limit";
                let mut lines = containment.guarantees.iter();
                lines.any(|line| line.status == GuaranteeStatus::Watched && watched(&line.key))
            })
        })
    }

    /// Kills everything in it without its agent. It has failed then, and is made anew by the next call.
    pub(crate) fn kill_from_outside(&self, why: &str) {
        if self.state() == SandboxState::Destroying {
            return;
        }
        tracing::warn!(sandbox = %self.name, id = %self.id, why, "killing a sandbox from outside");
        if let Err(error) = self.backend.kill(&self.id) {
            tracing::warn!(sandbox = %self.name, id = %self.id, %error, "a sandbox could not be killed from outside");
        }
    }

    pub(crate) fn is_reconnecting(&self) -> bool {
        self.reconnecting.load(Ordering::Acquire)
    }

    /// It was made by an earlier engine, and its agent is being reached.
    pub(crate) fn begin_reconnecting(&self) {
        self.reconnecting.store(true, Ordering::Release);
    }

    pub(crate) fn end_reconnecting(&self) {
        self.reconnecting.store(false, Ordering::Release);
        self.reconnected.notify_waiters();
    }

    /// Waits until it is reached, for a bounded time.
    pub(crate) async fn settled(&self) {
        if !self.is_reconnecting() {
            return;
        }
        let settled = async {
            loop {
                let notified = self.reconnected.notified();
                if !self.is_reconnecting() {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(RECONNECTING, settled).await.ok();
    }
}
