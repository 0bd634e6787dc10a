//! Children: sandboxes that other sandboxes spawn, with rights that only shrink.
//!
//! Owns the budget of spawning: which sandbox may spawn (`policy`, from the configuration), what a child gets
//! (`budget`), how often each has spawned (the table [`SpawnCounts`]). Who is whose child is part of a sandbox's
//! spec, and who exists is known to the fleet alone: nothing here keeps a second account that could differ.
//! How children end is the business of `sandbox::end_children`, since a parent ends them.
//!
//! Invariants: a child never has more than its parent; any number of spawns at once stay within the budget
//! (counting and taking the place is one step under one lock); a child is on record before anybody can use it.
//!
//! `spawn` makes one, on the request of a caller or of the parent itself; `control` is the daemon's end of the
//! socket by which a sandbox asks for its own children and nothing else. Called by the operations on children
//! and by `sandbox`, which has sandboxes listened to. Calls sandboxes and runs.

mod budget;
mod control;
pub mod control_protocol;
mod policy;
mod shapes;
mod spawn;

use std::sync::Arc;

use crate::base::{Settings, Tasks};
use crate::context::CallContext;
use crate::engine::EngineConfig;
use crate::events::Notifier;
use crate::journal::{Audit, Journal};
use crate::run::Runs;
use crate::sandbox::{Backends, Fleet, Sandbox, Sandboxes, SpawnCounts};
use crate::variables::Variables;
use isle_core::Result;
use isle_core::backend::ChildOf;
use isle_core::values::{Address, SandboxId, SandboxName};

pub(crate) use budget::InUse;
use budget::{Kin, Share};
pub(crate) use policy::DEEPEST;
pub use policy::{NamePattern, SpawnPolicies, SpawnPolicy};
pub(crate) use shapes::{child_brief, family_shape};
pub(crate) use spawn::SpawnRequest;

/// Whether a sandbox gets a control socket.
pub(crate) fn has_control(policy: Option<&SpawnPolicy>) -> bool {
    policy.is_some_and(|policy| policy.inject_ctl)
}

/// What children are built on.
pub(crate) struct ChildrenParts {
    pub(crate) settings: Arc<Settings>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) backends: Arc<Backends>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) spawn_counts: Arc<SpawnCounts>,
    pub(crate) variables: Arc<Variables>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) runs: Arc<Runs>,
}

/// See the module.
pub(crate) struct Children {
    config: Arc<EngineConfig>,
    settings: Arc<Settings>,
    tasks: Arc<Tasks>,
    journal: Arc<Journal>,
    notifier: Arc<Notifier>,
    backends: Arc<Backends>,
    fleet: Arc<Fleet>,
    spawn_counts: Arc<SpawnCounts>,
    variables: Arc<Variables>,
    sandboxes: Arc<Sandboxes>,
    runs: Arc<Runs>,
}

impl Sandbox {
    /// Whose child it is.
    pub(crate) fn child_of(&self) -> Option<&ChildOf> {
        self.spec.child.as_ref()
    }

    /// The sandbox at the root of its tree.
    pub(crate) fn root(&self) -> Address {
        self.child_of().map_or_else(|| self.address(), |child| child.root.clone())
    }
}

impl Children {
    pub(crate) fn new(parts: ChildrenParts) -> Self {
        Self {
            config: Arc::clone(parts.settings.started_with()),
            settings: parts.settings,
            tasks: parts.tasks,
            journal: parts.journal,
            notifier: parts.notifier,
            backends: parts.backends,
            fleet: parts.fleet,
            spawn_counts: parts.spawn_counts,
            variables: parts.variables,
            sandboxes: parts.sandboxes,
            runs: parts.runs,
        }
    }

    /// How many children a sandbox ever had, those that are being made included.
    pub(crate) fn spawned(&self, parent: &Address) -> u32 {
        self.spawn_counts.spawned(parent)
    }

    /// Reads how often each sandbox has spawned, at start.
    pub(crate) fn load(&self) -> Result<()> {
        let mut counts = self.spawn_counts.hold();
        for (name, count) in self.journal.spawns()? {
            if let Ok(name) = name.parse() {
                counts.insert(name, count);
            }
        }
        Ok(())
    }

    /// The operator lets a sandbox spawn as if it never had. Returns how many it had.
    pub(crate) fn reset_count(&self, context: &CallContext, name: &SandboxName) -> Result<u32> {
        let address = context.address(name);
        let mut counts = self.spawn_counts.hold();
        let before = counts.get(&address).copied().unwrap_or(0);
        let detail = serde_json::json!({ "spawned": before });
        self.journal.reset_spawns(&address, &Audit::of_name(context, "reset_spawn_count", name, detail))?;
        isle_fail::pass(isle_fail::Point::SpawnCountReset);
        counts.remove(&address);
        Ok(before)
    }

    /// The policy of a sandbox and that of its whole tree, as the configuration says now.
    pub(crate) fn policies_of(&self, sandbox: &Sandbox) -> Option<(SpawnPolicy, SpawnPolicy)> {
        let root = self.config.spawn_policies.of(&sandbox.root())?;
        let own = match sandbox.child_of() {
            None => root.clone(),
            Some(child) if child.depth < DEEPEST => root.derived()?,
            Some(_) => return None,
        };
        Some((own, root.clone()))
    }

    /// All that descends from an incarnation, children before grandchildren, by name.
    pub(crate) fn family(&self, parent: &SandboxId) -> Vec<Arc<Sandbox>> {
        self.fleet.family(parent)
    }

    /// What is in use below a sandbox and in its tree.
    pub(crate) fn in_use(&self, parent: &Sandbox) -> InUse {
        let all = self.fleet.named();
        let kin = all.iter().filter_map(|sandbox| {
            let share = Share { cpus: sandbox.spec.limits.cpus, memory: sandbox.spec.limits.memory };
            sandbox.child_of().map(|of| Kin { id: &sandbox.id, of, share })
        });
        InUse::count(&parent.id, &parent.root(), kin)
    }
}
