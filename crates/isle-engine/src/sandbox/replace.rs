//! One incarnation of a sandbox in the place of another: after it died, when its policy changed, and when it
//! is reset. The old record stays until the new one runs, so that nothing is lost in between.

use std::sync::Arc;

use isle_fail::Point;

use super::Sandboxes;
use super::make::{SandboxRequest, expired};
use super::settings::Chosen;
use super::{Origin, Sandbox, SandboxState, Wipe};
use crate::context::CallContext;
use crate::events::EventKind;
use crate::failpoint;
use crate::journal::{Actor, Audit};
use crate::run::Ending;
use isle_core::backend::Keep;
use isle_core::values::SandboxName;
use isle_core::{Code, Error, Result};

impl Sandboxes {
    /// Ends an incarnation that another one is to replace. Its record stays until that one runs, so that
    /// whatever happens in between, the next call builds it with the same settings.
    pub(super) async fn take_down(
        &self,
        old: &Arc<Sandbox>,
        audit: &Audit,
        ending: Option<Ending>,
        wipe: Option<Wipe>,
    ) -> Result<()> {
        let before = old.state();
        // First in memory: nobody may use it any more, and its end is no accident.
        old.set_state(SandboxState::Destroying);
        match self.journal.sandbox_given_up(old, audit, wipe) {
            Ok(()) => {}
            Err(error) if error.code == Code::NoSpace && before != SandboxState::Running => {
                tracing::warn!(sandbox = %old.name, %error, "replacing a dead sandbox without saying so first");
            }
            Err(error) => {
                old.set_state(before);
                return Err(error);
            }
        }
        if let Some(wipe) = wipe {
            self.wipes.add(&old.address(), wipe);
        }
        failpoint(Point::ReplaceMarked)?;
        self.end_children(&old.id).await?;
        if let Some(ending) = ending {
            for run in self.runs.running_in(&old.id) {
                run.intend(ending);
            }
        }
        old.backend.destroy(&old.id, Keep::Workspace).await?;
        failpoint(Point::ReplaceRemoved)
    }

    /// Builds what replaces an incarnation that was taken down. When that fails, the old one stays known
    /// as failed, and the next call tries again.
    pub(super) async fn build_in_place_of(
        self: &Arc<Self>,
        actor: &Actor,
        origin: Origin,
        wanted: SandboxRequest,
        old: Arc<Sandbox>,
    ) -> Result<Arc<Sandbox>> {
        let built = self.build(actor, origin, wanted, old.address(), Some(&old)).await;
        match &built {
            Ok(new) => {
                if let Err(error) = self.journal.sandbox_replaced_others(new) {
                    tracing::warn!(sandbox = %new.name, %error, "the record of a replaced sandbox stays until the next start");
                }
                isle_fail::pass(Point::ReplaceForgotten);
            }
            Err(_) if self.fleet.get(&old.address()).is_none_or(|present| present.id == old.id) => {
                old.set_state(SandboxState::Failed);
                self.fleet.put(old);
            }
            Err(_) => {}
        }
        built
    }

    /// Makes a sandbox anew with the settings it has: its workspace, caches and variables stay, everything
    /// else of it goes.
    pub(crate) async fn reset(
        self: &Arc<Self>,
        context: &CallContext,
        name: &SandboxName,
        emptied: bool,
    ) -> Result<Arc<Sandbox>> {
        let address = context.address(name);
        let known = self.fleet.get(&address).ok_or_else(|| self.fleet.no_such_sandbox(&address))?;
        known.refuse_child("reset")?;
        self.tasks.refuse_when_stopping()?;
        // In a task of its own: what was begun is finished even when the caller goes away.
        let (sandboxes, actor) = (Arc::clone(self), Actor::of(context));
        let resetting = self.tasks.spawn(async move {
            let gate = sandboxes.fleet.gate(&address);
            let _held = gate.lock().await;
            let old =
                sandboxes.fleet.get(&address).ok_or_else(|| sandboxes.fleet.no_such_sandbox(&address))?;
            old.refuse_child("reset")?;
            if old.lease.has_expired() {
                return Err(expired(&old));
            }
            let wanted = match old.origin {
                Origin::Explicit => SandboxRequest::of(&old),
                Origin::Defaults => {
                    let now = sandboxes.wanted(&Chosen::default(), &address)?;
                    SandboxRequest { terms: old.terms, ..now }
                }
            };
            let wanted = SandboxRequest { emptied, ..wanted };
            let how = if emptied { "its caches stay" } else { "its workspace and caches stay" };
            let audit = Audit::lifecycle(&actor, "reset_sandbox", &old, how);
            let wipe = emptied.then_some(Wipe::Workspace);
            sandboxes.take_down(&old, &audit, Some(Ending::Reset), wipe).await?;
            let built = sandboxes.build_in_place_of(&actor, old.origin, wanted, old).await?;
            sandboxes.notifier.sandbox(EventKind::SandboxReset, &built, how);
            Ok(built)
        });
        resetting.await.map_err(|error| Error::internal(format!("resetting the sandbox failed: {error}")))?
    }
}
