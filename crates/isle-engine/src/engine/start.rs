//! Starting: what is stored is read, what an earlier daemon left is brought in order, and then callers are
//! served. The order matters: variables, secrets and spawn counts are known before a sandbox is reconnected to,
//! and syncs and webhooks begin when all sandboxes are known.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::recover::Recovery;
use crate::sandbox::Chosen;
use isle_core::Result;
use isle_core::backend::SandboxSpec;

/// How often old runs and events are removed: every so many ticks. The clock ticks more often than that: a timer
/// that is nearer than the timers of calls spares each of them the waking of whoever waits for timers.
const TICK: Duration = Duration::from_secs(20);
const TICKS: u32 = 180;

impl Inner {
    pub(super) async fn start(self: &Arc<Self>) -> Result<()> {
        self.tenants.load()?;
        self.network.load_namespace_grants()?;
        self.tuning.load()?;
        tokio::spawn(self.events.keep());
        self.variables.load()?;
        self.secrets.load_vault().await?;
        self.children.load()?;
        self.sandboxes.watch_agents();
        self.sandboxes.load_wipes()?;
        self.recovery().run().await?;
        self.sandboxes.finish_wipes().await;
        self.secrets.settle_secrets();
        self.sandboxes.end_orphans().await;
        self.syncs.resume()?;
        self.webhooks.load()?;
        self.remove_old_regularly();
        self.sandboxes.sweep_regularly();
        self.warm_up();
        Ok(())
    }

    fn recovery(&self) -> Arc<Recovery> {
        Arc::new(Recovery {
            settings: Arc::clone(&self.settings),
            journal: Arc::clone(&self.journal),
            notifier: Arc::clone(&self.notifier),
            tenants: Arc::clone(&self.tenants),
            backends: Arc::clone(&self.backends),
            fleet: Arc::clone(&self.fleet),
            spawn_counts: Arc::clone(&self.spawn_counts),
            variables: Arc::clone(&self.variables),
            secrets: Arc::clone(&self.secrets),
            sandboxes: Arc::clone(&self.sandboxes),
            runs: Arc::clone(&self.runs),
        })
    }

    /// Drops old runs and events, now and every hour.
    fn remove_old_regularly(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                let Some(inner) = engine.upgrade() else { return };
                inner.events.evict();
                // Both may take a while; the files of a run go when its record is gone.
                let work = tokio::task::spawn_blocking(move || {
                    inner.journal.evict_now();
                    inner.runs.sweep_job_output();
                });
                if let Err(error) = work.await {
                    tracing::warn!(%error, "old runs could not be removed");
                }
                for _ in 0..TICKS {
                    tokio::time::sleep(TICK).await;
                    if engine.strong_count() == 0 {
                        return;
                    }
                }
            }
        });
    }

    /// Has the default sandbox, and what one-shots need, ready before anybody asks.
    fn warm_up(&self) {
        let Ok(usual) = Chosen::default().spec(&self.settings.current(), None) else { return };
        let one_shot = SandboxSpec { fixed_etc: true, ..usual };
        if let Ok(backend) = self.backends.for_spec(&one_shot) {
            backend.warm(&one_shot);
        }
        if self.config.warm_default {
            self.sandboxes.make_spare();
        }
    }
}
