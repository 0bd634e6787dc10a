//! Reconnecting to a sandbox that is on record as running, with the runs in it; when it is dead, that is
//! recorded, and the next call recreates it.

use std::sync::Arc;
use std::time::Duration;

use isle_fail::Point;
use isle_store::{RunRow, SandboxRow};

use super::{Recovery, address_of};
use crate::events::EventKind;
use crate::failpoint;
use crate::journal::{Actor, Audit};
use crate::sandbox::{Chosen, Lease, Made, Origin, Sandbox, SandboxState};
use isle_core::Result;
use isle_core::backend::{Found, Keep};
use isle_core::values::{Address, SandboxId};

/// How often a sandbox is asked for before it counts as dead, and the pause between.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);

/// Whether a sandbox that is being reached has a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reaching {
    Recorded,
    Unrecorded,
}

impl Recovery {
    pub(super) async fn take_over(
        self: &Arc<Self>,
        id: &SandboxId,
        row: &SandboxRow,
        runs: &[RunRow],
    ) -> Result<Option<SandboxId>> {
        let (backend, stored) = self.backend_of(row)?;
        let address = address_of(row, &stored.spec)?;
        let name = address.name.clone();
        let incarnation = || {
            let (id, address) = (id.clone(), address.clone());
            let mut sandbox =
                Sandbox::new(id, address, stored.clone(), Arc::clone(&backend), row.created_at_ms);
            sandbox.lease = Lease::restored(sandbox.terms, &row.lease);
            Arc::new(sandbox)
        };
        let reached = if row.state == SandboxState::Failed.as_str() {
            None
        } else {
            self.reach(&incarnation, &row.anchor, Reaching::Recorded).await.unwrap_or_else(|error| {
                // Whoever cannot be spoken to is of no use to anybody: the next call builds it anew.
                tracing::warn!(sandbox = %name, %error, "the sandbox could not be taken over");
                None
            })
        };
        if row.state != SandboxState::Failed.as_str() && !self.is_still_there(&address, id) {
            // It was destroyed while its agent was being reached.
            return Ok(Some(id.clone()));
        }
        if let Some((sandbox, anchor)) = reached {
            self.note_drift(&sandbox)?;
            self.sandboxes.restore_pause(&sandbox).await;
            if row.state == SandboxState::Creating.as_str() {
                let audit =
                    Audit::lifecycle(&Actor::engine(), "adopt_sandbox", &sandbox, "its record was too old");
                self.journal.sandbox_running(&sandbox, anchor, &audit)?;
            }
            self.runs.take_over_all(&sandbox, runs).await;
            sandbox.end_reconnecting();
            if sandbox.state() == SandboxState::Failed {
                // It died before anybody watched for that.
                sandbox.set_state(SandboxState::Failed);
                self.journal.sandbox_failed(&sandbox, "its agent is gone");
                self.notifier.sandbox(EventKind::SandboxLost, &sandbox, "its agent is gone");
            }
            isle_fail::pass(Point::RecoverRunsTaken);
            tracing::info!(sandbox = %name, runs = runs.len(), "took the sandbox over");
            return Ok(Some(id.clone()));
        }
        if row.state == SandboxState::Failed.as_str()
            && let Err(error) = backend.destroy(id, Keep::Workspace).await
        {
            // One that was being replaced may still live, though it is nobody's any more. Whoever builds it
            // anew tries again.
            tracing::warn!(sandbox = %name, %error, "what is left of a failed sandbox could not be removed");
        }
        let before = self.fleet.get(&address).filter(|sandbox| sandbox.id == *id);
        let sandbox = incarnation();
        if let Ok(Some(containment)) = serde_json::from_value(row.containment.clone()) {
            sandbox.set_containment(containment);
        }
        sandbox.set_state(SandboxState::Failed);
        for run in runs {
            self.runs.lose(run, "the sandbox died");
        }
        if row.state != SandboxState::Failed.as_str() {
            self.journal.sandbox_failed(&sandbox, "it was dead when the daemon started");
            self.notifier.sandbox(EventKind::SandboxLost, &sandbox, "it was dead when the daemon started");
            isle_fail::pass(Point::RecoverFailureRecorded);
        }
        match before {
            // Known until now as one that is being reached; whoever waits for that goes on.
            Some(before) => {
                self.fleet.put(sandbox);
                before.set_state(SandboxState::Failed);
                before.end_reconnecting();
            }
            None => self.fleet.put_unless_there(sandbox),
        }
        Ok(Some(id.clone()))
    }

    /// Whether a sandbox that is being reached is still wanted.
    fn is_still_there(&self, address: &Address, id: &SandboxId) -> bool {
        self.fleet
            .get(address)
            .is_some_and(|sandbox| sandbox.id == *id && sandbox.state() != SandboxState::Destroying)
    }

    /// Speaks to a sandbox an earlier engine made; `None` when it is dead. An error on the way is not
    /// yet its death: it is tried again.
    pub(super) async fn reach(
        self: &Arc<Self>,
        incarnation: &(impl Fn() -> Arc<Sandbox> + Sync),
        anchor: &serde_json::Value,
        reaching: Reaching,
    ) -> Result<Option<(Arc<Sandbox>, serde_json::Value)>> {
        let mut tries = 1;
        loop {
            let sandbox = incarnation();
            if reaching == Reaching::Recorded {
                if tries > 1 && !self.is_still_there(&sandbox.address(), &sandbox.id) {
                    return Ok(None);
                }
                // Known from the start, so that it can be shown and destroyed before it answers.
                sandbox.begin_reconnecting();
                sandbox.set_state(SandboxState::Running);
                self.fleet.put(Arc::clone(&sandbox));
            }
            let reached = async {
                let found = sandbox.backend.reconnect(&sandbox.id, &sandbox.spec, anchor).await?;
                let Found::Alive(created) = found else { return Ok(None) };
                let anchor = created.anchor.clone();
                self.sandboxes.connect(&sandbox, created, Made::Earlier).await?;
                failpoint(Point::RecoverConnected)?;
                Ok(Some((Arc::clone(&sandbox), anchor)))
            };
            match reached.await {
                Err(error) if tries < TRIES => {
                    tracing::warn!(sandbox = %sandbox.name, %error, "the sandbox did not answer; trying again");
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                other => return other,
            }
        }
    }

    /// A sandbox made from the configuration follows it: it is made anew when nothing runs in it.
    fn note_drift(&self, sandbox: &Sandbox) -> Result<()> {
        if sandbox.origin == Origin::Defaults {
            let now = Chosen::default().spec(&self.settings.current(), Some(sandbox.address()))?;
            if !sandbox.has_spec(&now) {
                sandbox.set_drifted();
            }
        }
        Ok(())
    }
}
