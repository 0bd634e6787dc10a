//! Standing still and going on. What is wanted is on record before the agent is told, so that the next
//! daemon makes it so if this one dies in between.

use std::sync::Arc;

use isle_fail::Point;

use super::Sandboxes;
use super::make::expired;
use super::{Sandbox, SandboxState};
use crate::agent::paused as standing_still;
use crate::context::CallContext;
use crate::events::EventKind;
use crate::failpoint;
use crate::journal::{Actor, Audit};
use isle_core::backend::Pause;
use isle_core::values::{Address, SandboxName};
use isle_core::{Code, Error, Result};

/// What a call to pause or resume did.
#[derive(Debug)]
pub(crate) struct Stood {
    pub(crate) sandbox: Arc<Sandbox>,
    /// How many processes stopped or go on; `None` when it was so already.
    pub(crate) processes: Option<u64>,
}

impl Sandboxes {
    /// Stops everything in a sandbox.
    pub(crate) async fn pause(self: &Arc<Self>, context: &CallContext, name: &SandboxName) -> Result<Stood> {
        self.set_paused(context, name, true).await
    }

    /// Lets everything in a sandbox go on.
    pub(crate) async fn resume(self: &Arc<Self>, context: &CallContext, name: &SandboxName) -> Result<Stood> {
        self.set_paused(context, name, false).await
    }

    /// In a task of its own: what was begun is finished even when the caller goes away.
    async fn set_paused(
        self: &Arc<Self>,
        context: &CallContext,
        name: &SandboxName,
        on: bool,
    ) -> Result<Stood> {
        self.tasks.refuse_when_stopping()?;
        let (sandboxes, address, actor) = (Arc::clone(self), context.address(name), Actor::of(context));
        let setting = self.tasks.spawn(async move {
            let gate = sandboxes.fleet.gate(&address);
            let _held = gate.lock().await;
            sandboxes.set_paused_behind_gate(&actor, &address, on).await
        });
        setting.await.map_err(|error| Error::internal(format!("pausing the sandbox failed: {error}")))?
    }

    async fn set_paused_behind_gate(&self, actor: &Actor, address: &Address, on: bool) -> Result<Stood> {
        let sandbox = self.fleet.get(address).ok_or_else(|| self.fleet.no_such_sandbox(address))?;
        let name = &address.name;
        if sandbox.lease.has_expired() {
            return Err(expired(&sandbox));
        }
        if sandbox.state() != SandboxState::Running {
            return Err(Error::new(Code::SandboxFailed, format!("the sandbox {name} does not run"))
                .next("run a command in it: that builds it anew"));
        }
        if sandbox.capabilities.pause == Pause::Unsupported {
            let what = format!("the backend {} cannot pause sandboxes", sandbox.backend.name());
            return Err(Error::new(Code::BackendUnavailable, what)
                .next("use a sandbox of another backend; `isle doctor` lists what each can do"));
        }
        if sandbox.lease.is_paused() == on {
            return Ok(Stood { sandbox, processes: None });
        }
        let (action, what) = if on {
            ("pause_sandbox", "everything in it stands still")
        } else {
            ("resume_sandbox", "everything in it goes on")
        };
        let audit = Audit::lifecycle(actor, action, &sandbox, what);
        sandbox.lease.set_paused(on);
        let told = async {
            self.journal.lease_changed(&sandbox, sandbox.lease.stored(), &audit)?;
            failpoint(Point::PauseRecorded)?;
            sandbox.agent()?.pause(on).await
        };
        match told.await {
            Ok(processes) => {
                isle_fail::pass(Point::PauseDone);
                let kind = if on { EventKind::SandboxPaused } else { EventKind::SandboxResumed };
                self.notifier.sandbox(kind, &sandbox, what);
                Ok(Stood { sandbox, processes: Some(processes) })
            }
            Err(error) => {
                // As it was: on record, and in the sandbox should it have heard after all.
                sandbox.lease.set_paused(!on);
                if let Err(error) = self.journal.sandbox_last_used(&sandbox) {
                    tracing::warn!(sandbox = %name, %error, "that a sandbox was not paused or resumed could not be recorded");
                }
                if let Ok(agent) = sandbox.agent() {
                    agent.pause(!on).await.ok();
                }
                Err(error)
            }
        }
    }

    /// For a call that is about to run something: refuses a paused sandbox, or resumes it when that is
    /// wanted.
    pub(crate) async fn awake(
        self: &Arc<Self>,
        context: &CallContext,
        sandbox: &Sandbox,
        resume: bool,
    ) -> Result<()> {
        if !sandbox.lease.is_paused() {
            return Ok(());
        }
        if !resume {
            let mut error = standing_still();
            error.message = format!("the sandbox {} is paused; nothing was started", sandbox.name);
            return Err(error);
        }
        self.resume(context, &sandbox.name).await.map(drop)
    }

    /// Makes a sandbox of an earlier engine stand still, or go on, as its record says.
    pub(crate) async fn restore_pause(&self, sandbox: &Sandbox) {
        let Ok(agent) = sandbox.agent() else { return };
        if let Err(error) = agent.pause(sandbox.lease.is_paused()).await {
            tracing::warn!(sandbox = %sandbox.name, %error, "the sandbox could not be told whether it is paused");
        }
        isle_fail::pass(Point::RecoverPauseTold);
    }
}
