//! Ending a named sandbox: everything in it dies, its workspace stays unless it is to be wiped.

use std::sync::Arc;

use isle_fail::Point;

use super::Sandboxes;
use super::{Sandbox, SandboxState, Wipe};
use crate::context::CallContext;
use crate::events::EventKind;
use crate::failpoint;
use crate::journal::{Actor, Audit};
use crate::run::Ending;
use isle_core::backend::Keep;
use isle_core::values::{Address, SandboxName};
use isle_core::{Code, Error, Result};

impl Sandboxes {
    /// Destroys the sandbox of that name.
    pub(crate) async fn destroy(
        self: &Arc<Self>,
        context: &CallContext,
        name: &SandboxName,
        keep: Keep,
    ) -> Result<()> {
        let address = context.address(name);
        if self.fleet.get(&address).is_none() {
            return match keep {
                // Workspaces that stay are those of sandboxes nobody spawned: nothing is left of a child.
                Keep::Nothing if !name.is_child() => self.wipe(context, &address).await,
                Keep::Workspace | Keep::WhatWasBefore | Keep::Nothing => {
                    Err(self.fleet.no_such_sandbox(&address))
                }
            };
        }
        // In a task of its own: what was begun is finished even when the caller goes away.
        let (sandboxes, context) = (Arc::clone(self), context.clone());
        let ending = self.tasks.spawn(async move {
            let actor = Actor::of(&context);
            let gate = sandboxes.fleet.gate(&address);
            let _held = gate.lock().await;
            let Some(sandbox) = sandboxes.fleet.get(&address) else {
                // Another call, or its deadline, removed it while this one waited: it is gone, as was
                // wanted. Its workspace may have stayed.
                return match keep {
                    Keep::Nothing if !address.name.is_child() => {
                        sandboxes.wipe_left(&actor, &address).await.map(drop)
                    }
                    Keep::Workspace | Keep::WhatWasBefore | Keep::Nothing => Ok(()),
                };
            };
            for run in sandboxes.runs.running_in(&sandbox.id) {
                run.intend(Ending::Destroyed);
            }
            // Nothing of a child stays.
            let keep = if sandbox.spec.child.is_some() { Keep::Nothing } else { keep };
            let how = match keep {
                Keep::Workspace | Keep::WhatWasBefore => "its workspace stays",
                Keep::Nothing => "its workspace was wiped",
            };
            let audit = Audit::lifecycle(&actor, "destroy_sandbox", &sandbox, how);
            sandboxes.remove_incarnation(&sandbox, keep, &audit).await?;
            let kind = match sandbox.child_of() {
                Some(_) => EventKind::ChildDestroyed,
                None => EventKind::SandboxDestroyed,
            };
            sandboxes.notifier.sandbox(kind, &sandbox, how);
            Ok(())
        });
        ending.await.map_err(|error| Error::internal(format!("destroying the sandbox failed: {error}")))?
    }

    /// Removes the workspace that a destroyed sandbox left.
    async fn wipe(self: &Arc<Self>, context: &CallContext, address: &Address) -> Result<()> {
        let gate = self.fleet.gate(address);
        let _held = gate.lock().await;
        if self.fleet.get(address).is_some() {
            return Err(Error::new(Code::Busy, format!("{} is being made at this moment", address.name))
                .next("destroy it again: it exists now"));
        }
        if self.wipe_left(&Actor::of(context), address).await? {
            Ok(())
        } else {
            Err(self.fleet.no_such_sandbox(address))
        }
    }

    /// Removes what is left of a name, whose gate is held; whether there was anything.
    pub(super) async fn wipe_left(&self, actor: &Actor, address: &Address) -> Result<bool> {
        // A wipe that was cut short may have left nothing else.
        let mut wiped = !self.variables.of(address).is_empty() || self.wipes.is_due(address, Wipe::Volume);
        match self.journal.wipe_begins(address) {
            // As below: removing is what makes room.
            Err(error) if error.code == Code::NoSpace => {
                tracing::warn!(sandbox = %address, %error, "wiping a workspace without saying so first");
            }
            begun => begun?,
        }
        self.wipes.add(address, Wipe::Volume);
        for backend in self.backends.all() {
            wiped |= backend.wipe(address).await?;
        }
        if !wiped {
            self.journal.forget_wipe(address);
            self.wipes.done(address);
            return Ok(false);
        }
        failpoint(Point::WipeRemoved)?;
        let _held = self.variables.hold();
        self.journal
            .forget_variables(address, &Audit::workspace(actor, "wipe_workspace", address))
            .map_err(|error| error.unrecorded("the workspace was wiped"))?;
        self.wipes.done(address);
        self.variables.forget(address);
        self.spawn_counts.forget(address);
        self.secrets.forget_secrets(address);
        Ok(true)
    }

    /// Removes an incarnation: what it left on the host, its record, its place in the fleet.
    pub(crate) async fn remove_incarnation(
        &self,
        sandbox: &Arc<Sandbox>,
        keep: Keep,
        audit: &Audit,
    ) -> Result<()> {
        // The volume of a child is nobody else's, so nothing of it would ever be found again.
        let is_child = sandbox.spec.child.is_some();
        // A wipe that was begun is finished, also by a call that wants less.
        let is_due = self.wipes.is_due(&sandbox.address(), Wipe::Volume);
        let keep = if is_child || is_due { Keep::Nothing } else { keep };
        // What a start finds of a child is always removed with all that is its own.
        let wipe = (keep == Keep::Nothing && !is_child).then_some(Wipe::Volume);
        sandbox.set_state(SandboxState::Destroying);
        self.ports.end_of_sandbox(&sandbox.id);
        match self.journal.sandbox_destroying(sandbox, wipe) {
            // Removing is what makes room. If the daemon dies on the way, the next one finds a sandbox
            // that died.
            Err(error) if error.code == Code::NoSpace => {
                tracing::warn!(sandbox = %sandbox.name, %error, "destroying a sandbox without saying so first");
            }
            marked => marked?,
        }
        if let Some(wipe) = wipe {
            self.wipes.add(&sandbox.address(), wipe);
        }
        failpoint(Point::DestroyMarked)?;
        self.end_children(&sandbox.id).await?;
        sandbox.backend.destroy(&sandbox.id, keep).await?;
        if let (Keep::Nothing, Some(volume)) = (keep, &sandbox.spec.volume) {
            // An earlier attempt that kept the workspace may have come so far that nothing but the name
            // leads to it.
            sandbox.backend.wipe(volume).await?;
        }
        failpoint(Point::DestroyRemoved)?;
        match keep {
            Keep::Nothing => {
                let _held = self.variables.hold();
                self.journal.wipe_sandbox(&sandbox.id, &sandbox.address(), audit)?;
                self.wipes.done(&sandbox.address());
                self.variables.forget(&sandbox.address());
                self.spawn_counts.forget(&sandbox.address());
                self.secrets.forget_secrets(&sandbox.address());
            }
            Keep::Workspace | Keep::WhatWasBefore => {
                self.journal.sandbox_destroyed(&sandbox.id, audit)?;
                self.secrets.detach_all_secrets(&sandbox.address());
            }
        }
        self.fleet.take_out(sandbox);
        sandbox.let_parent_go();
        failpoint(Point::DestroyForgotten)
    }
}
