//! Taking over a living sandbox that no record names: the database was lost or is an old copy.

use std::sync::Arc;

use isle_core::clock::wall_clock_ms;
use isle_fail::Point;

use super::Recovery;
use super::take_over::Reaching;
use crate::journal::{Actor, Audit};
use crate::sandbox::{Origin, Sandbox, SandboxState, StoredSpec, Terms};
use isle_core::backend::{Backend, Keep, SandboxSpec};
use isle_core::values::SandboxId;

impl Recovery {
    /// Takes a living sandbox over that no record speaks of: the database was lost or is an old copy.
    /// Returns its id when it must stay.
    pub(super) async fn adopt(
        self: &Arc<Self>,
        backend: &Arc<dyn Backend>,
        id: SandboxId,
        spec: SandboxSpec,
    ) -> Option<SandboxId> {
        let name = spec.child.as_ref().map(|child| child.name.clone()).or_else(|| spec.volume.clone())?;
        let recorded = self.fleet.get(&name);
        if recorded.as_ref().is_some_and(|sandbox| sandbox.state() == SandboxState::Running) {
            return None;
        }
        // How long it was to live is not in the backend's record.
        let (origin, terms) = (Origin::Explicit, Terms::default());
        let (profile, grants, authority) = (None, Vec::new(), None);
        let backend_name = backend.name();
        let stored = StoredSpec { origin, backend: backend_name, spec, terms, profile, grants, authority };
        let incarnation = || {
            let (id, name) = (id.clone(), name.clone());
            // A volume is called as its sandbox is, namespace included.
            Arc::new(Sandbox::new(id, name, stored.clone(), Arc::clone(backend), wall_clock_ms()))
        };
        let (sandbox, anchor) = match self
            .reach(&incarnation, &serde_json::Value::Null, Reaching::Unrecorded)
            .await
        {
            Ok(reached) => reached?,
            Err(error) => {
                tracing::warn!(sandbox = %name, %error, "a sandbox without a record did not answer; it is left alone");
                return Some(id);
            }
        };
        if let Some(recorded) = recorded {
            // Another incarnation that died, of which less is left than of this one.
            let audit = Audit::lifecycle(&Actor::engine(), "replace_sandbox", &recorded, "another one lives");
            if let Err(error) = self.sandboxes.remove_incarnation(&recorded, Keep::Workspace, &audit).await {
                tracing::warn!(sandbox = %name, %error, "a dead sandbox is in the way of a living one");
                return Some(id);
            }
        }
        let audit = Audit::lifecycle(&Actor::engine(), "adopt_sandbox", &sandbox, "its record was lost");
        if let Err(error) = self.journal.sandbox_adopted(&sandbox, anchor, &audit) {
            tracing::warn!(sandbox = %name, %error, "a sandbox without a record could not be recorded; it is left alone");
            return Some(id);
        }
        isle_fail::pass(Point::RecoverAdopted);
        sandbox.set_state(SandboxState::Running);
        self.tenants.found_namespace(&sandbox.namespace);
        self.fleet.put(Arc::clone(&sandbox));
        self.runs.take_over_all(&sandbox, &[]).await;
        tracing::warn!(sandbox = %name, "took a sandbox over whose record was lost");
        Some(id)
    }
}
