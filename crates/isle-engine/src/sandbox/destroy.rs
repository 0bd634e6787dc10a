//! Ending a named sandbox: everything in it dies, its workspace stays unless it is to be wiped.

use std::sync::Arc;

use isle_fail::Point;

use super::{Sandbox, SandboxState};
use crate::backend::Keep;
use crate::context::CallContext;
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::events::EventKind;
use crate::failpoint;
use crate::journal::{Actor, Audit};
use crate::run::Ending;
use crate::values::{Address, SandboxName};

impl Inner {
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
                Keep::Workspace | Keep::WhatWasBefore => Err(self.no_such_sandbox(&address)),
                Keep::Nothing => self.wipe(context, &address).await,
            };
        }
        // In a task of its own: what was begun is finished even when the caller goes away.
        let (inner, context) = (Arc::clone(self), context.clone());
        let ending = self.tasks.spawn(async move {
            let actor = Actor::of(&context);
            let gate = inner.fleet.gate(&address);
            let _held = gate.lock().await;
            let Some(sandbox) = inner.fleet.get(&address) else {
                // Another call, or its deadline, removed it while this one waited: it is gone, as was
                // wanted. Its workspace may have stayed.
                return match keep {
                    Keep::Workspace | Keep::WhatWasBefore => Ok(()),
                    Keep::Nothing => inner.wipe_left(&context, &address).await.map(drop),
                };
            };
            for run in inner.runs.running_in(&sandbox.id) {
                run.intend(Ending::Destroyed);
            }
            // Nothing of a child stays.
            let keep = if sandbox.spec.child.is_some() { Keep::Nothing } else { keep };
            let how = match keep {
                Keep::Workspace | Keep::WhatWasBefore => "its workspace stays",
                Keep::Nothing => "its workspace was wiped",
            };
            let audit = Audit::lifecycle(&actor, "destroy_sandbox", &sandbox, how);
            inner.remove_incarnation(&sandbox, keep, &audit).await?;
            let kind = match sandbox.child_of() {
                Some(_) => EventKind::ChildDestroyed,
                None => EventKind::SandboxDestroyed,
            };
            inner.tell_sandbox(kind, &sandbox, how);
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
        if self.wipe_left(context, address).await? { Ok(()) } else { Err(self.no_such_sandbox(address)) }
    }

    /// Removes what is left of a name, whose gate is held; whether there was anything.
    async fn wipe_left(&self, context: &CallContext, address: &Address) -> Result<bool> {
        // A wipe that was cut short may have left nothing else.
        let mut wiped = !self.variables.of(address).is_empty();
        for backend in &self.backends {
            wiped |= backend.wipe(address).await?;
        }
        if !wiped {
            return Ok(false);
        }
        failpoint(Point::WipeRemoved)?;
        let _held = self.variables.hold();
        self.journal
            .forget_variables(address, &Audit::workspace(context, "wipe_workspace", &address.name))
            .map_err(|error| error.unrecorded("the workspace was wiped"))?;
        self.variables.forget(address);
        self.children.forget(address);
        self.forget_secrets(address);
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
        let keep = if sandbox.spec.child.is_some() { Keep::Nothing } else { keep };
        sandbox.set_state(SandboxState::Destroying);
        match self.journal.sandbox_destroying(sandbox) {
            // Removing is what makes room. If the daemon dies on the way, the next one finds a sandbox
            // that died.
            Err(error) if error.code == Code::NoSpace => {
                tracing::warn!(sandbox = %sandbox.name, %error, "destroying a sandbox without saying so first");
            }
            marked => marked?,
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
                self.variables.forget(&sandbox.address());
                self.children.forget(&sandbox.address());
                self.forget_secrets(&sandbox.address());
            }
            Keep::Workspace | Keep::WhatWasBefore => {
                self.journal.sandbox_destroyed(&sandbox.id, audit)?;
                self.detach_all_secrets(&sandbox.address());
            }
        }
        self.fleet.take_out(sandbox);
        sandbox.let_parent_go();
        failpoint(Point::DestroyForgotten)
    }
}
