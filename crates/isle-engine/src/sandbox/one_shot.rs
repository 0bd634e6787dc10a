//! Sandboxes for one command. Whoever holds the guard owns the sandbox: when the guard goes, so
//! does the sandbox, in the background, whatever happened before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use isle_core::clock::wall_clock_ms;
use isle_fail::Point;

use super::Sandboxes;
use super::ceilings::Ceilings;
use super::lease::Terms;
use super::make::Made;
use super::{Origin, Programs, Sandbox, SandboxState, StoredSpec};
use crate::events::EventKind;
use crate::failpoint;
use crate::metrics::SandboxFate;
use crate::profile::MadeBy;
use isle_core::backend::{BackendName, Keep, SandboxSpec};
use isle_core::values::{Address, Namespace, SandboxId};
use isle_core::{Error, Result};

/// Owns a one-shot sandbox.
pub(crate) struct OneShotGuard {
    sandboxes: Arc<Sandboxes>,
    sandbox: Arc<Sandbox>,
}

impl std::fmt::Debug for OneShotGuard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("OneShotGuard").field(&self.sandbox).finish()
    }
}

impl OneShotGuard {
    pub(crate) fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }
}

impl Drop for OneShotGuard {
    fn drop(&mut self) {
        let (sandboxes, sandbox) = (Arc::clone(&self.sandboxes), Arc::clone(&self.sandbox));
        let was_made = sandbox.state() != SandboxState::Creating;
        if !was_made {
            sandboxes.metrics.became(&sandbox, SandboxFate::Failed);
        }
        sandbox.set_state(SandboxState::Destroying);
        // Outside a runtime nothing can be awaited; the next start sweeps it away.
        self.sandboxes
            .tasks
            .spawn_if_possible(async move { sandboxes.remove_one_shot(&sandbox, was_made).await });
    }
}

impl Sandboxes {
    /// Makes a sandbox for one command.
    pub(crate) async fn make_one_shot(
        self: &Arc<Self>,
        namespace: &Namespace,
        spec: SandboxSpec,
        profile: Option<MadeBy>,
    ) -> Result<OneShotGuard> {
        self.tasks.refuse_when_stopping()?;
        let backend = self.backends.for_spec(&spec)?;
        let (sandboxes, namespace) = (Arc::clone(self), namespace.clone());
        // In a task of its own: a caller who goes away must not leave a half-made sandbox behind.
        let making = self.tasks.spawn(async move {
            let begun = Instant::now();
            let id = SandboxId::fresh();
            // An id follows the rules of names, so it can stand where a name is due.
            let address = Address::new(namespace, id.as_str().parse()?);
            let (origin, terms) = (Origin::Explicit, Terms::default());
            let (backend_name, grants, authority) = (backend.name(), Vec::new(), None);
            let stored =
                StoredSpec { origin, backend: backend_name, spec, terms, profile, grants, authority };
            let mut sandbox = Sandbox::new(id, address, stored, Arc::clone(&backend), wall_clock_ms());
            sandbox.programs = sandboxes.fleet.programs_of(&backend.name(), &sandbox.spec.image);
            let sandbox = Arc::new(sandbox);
            // Not written down: it dies with the engine, and the next one sweeps away what nobody knows.
            sandboxes.fleet.admit(Arc::clone(&sandbox), &Ceilings::of(&sandboxes.settings.current()))?;
            let guard = OneShotGuard { sandboxes: Arc::clone(&sandboxes), sandbox };
            let created = backend.create(&guard.sandbox.id, &guard.sandbox.spec).await?;
            failpoint(Point::OneShotMade)?;
            sandboxes.connect(&guard.sandbox, created, Made::Now).await?;
            failpoint(Point::OneShotConnected)?;
            guard.sandbox.set_state(SandboxState::Running);
            sandboxes.metrics.created(&guard.sandbox, begun.elapsed());
            sandboxes.notifier.sandbox(EventKind::SandboxCreated, &guard.sandbox, "");
            Ok(guard)
        });
        making.await.map_err(|error| Error::internal(format!("making the sandbox failed: {error}")))?
    }

    async fn remove_one_shot(&self, sandbox: &Sandbox, was_made: bool) {
        if let Err(error) = sandbox.backend.destroy(&sandbox.id, Keep::Nothing).await {
            tracing::warn!(id = %sandbox.id, %error, "a one-shot could not be removed; the next start tries again");
        }
        isle_fail::pass(Point::OneShotRemoved);
        self.fleet.take_out_one_shot(&sandbox.id);
        self.secrets.forget_secrets(&sandbox.address());
        if was_made {
            self.notifier.sandbox(EventKind::SandboxDestroyed, sandbox, "");
        }
    }
}

/// What one-shots of the same image share.
#[derive(Debug, Default)]
pub(crate) struct OneShotShared {
    programs: Mutex<HashMap<(BackendName, String), Arc<Programs>>>,
}

impl OneShotShared {
    pub(super) fn programs_of(&self, backend: &BackendName, image: &str) -> Arc<Programs> {
        let mut programs = crate::lock(&self.programs);
        Arc::clone(programs.entry((backend.clone(), image.to_owned())).or_default())
    }
}
