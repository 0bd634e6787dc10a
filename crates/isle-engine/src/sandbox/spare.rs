//! The sandbox `default` is made when the daemon starts, for whoever comes first. One that nobody came for
//! is nobody's, and goes when the daemon is stopped: `isle stop` leaves nothing running that nobody wanted.
//! After a crash it is found again, and then counts as any other: what was done in it need not be on record.

use std::sync::Arc;

use super::Sandboxes;
use super::make::CreateReason;
use crate::context::{CallContext, Door};
use crate::events::EventKind;
use crate::journal::{Actor, Audit};
use isle_core::backend::Keep;
use isle_core::values::SandboxName;

const NEVER_USED: &str = "the daemon had made it ready and was stopped before anybody used it";

impl Sandboxes {
    /// Makes the default sandbox, unless it is there.
    pub(crate) fn make_spare(self: &Arc<Self>) {
        let context = CallContext::new(Door::Library, "isle");
        let name = SandboxName::default_sandbox();
        if self.fleet.get(&context.address(&name)).is_some_and(|sandbox| sandbox.is_usable()) {
            return;
        }
        let sandboxes = Arc::clone(self);
        self.tasks.spawn(async move {
            if let Err(error) = sandboxes.make_named(&context, &name, CreateReason::Spare).await {
                tracing::warn!(%error, "the default sandbox could not be made ready");
            }
        });
    }

    /// Removes what was made ready and never used.
    pub(crate) async fn remove_spares(&self) {
        for sandbox in self.fleet.named() {
            let gate = self.fleet.gate(&sandbox.address());
            let _held = gate.lock().await;
            if self.fleet.get(&sandbox.address()).is_none_or(|present| present.id != sandbox.id)
                || !sandbox.lease.close_spare()
            {
                continue;
            }
            let audit = Audit::lifecycle(&Actor::engine(), "destroy_sandbox", &sandbox, NEVER_USED);
            match self.remove_incarnation(&sandbox, Keep::Workspace, &audit).await {
                Ok(()) => self.notifier.sandbox(EventKind::SandboxDestroyed, &sandbox, NEVER_USED),
                Err(error) => {
                    tracing::warn!(sandbox = %sandbox.name, %error, "a sandbox that nobody used could not be removed; the next daemon finds it");
                }
            }
        }
    }
}
