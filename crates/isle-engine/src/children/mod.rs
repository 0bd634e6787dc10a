//! Children: sandboxes that other sandboxes spawn, with rights that only shrink. Who is whose child is
//! part of a sandbox's spec; who exists is known to the fleet alone. Nothing here keeps a second account
//! that could differ from it.

mod budget;
mod control;
mod end;
pub mod line;
mod policy;
mod spawn;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::backend::ChildOf;
use crate::context::CallContext;
use crate::engine::Inner;
use crate::error::Result;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use crate::values::{Address, SandboxId, SandboxName};

pub(crate) use budget::InUse;
use budget::{Kin, Share};
pub(crate) use policy::DEEPEST;
pub use policy::{NamePattern, SpawnPolicies, SpawnPolicy};
pub(crate) use spawn::{Counted, SpawnRequest};

/// Whether a sandbox gets a control socket.
pub(crate) fn has_control(policy: Option<&SpawnPolicy>) -> bool {
    policy.is_some_and(|policy| policy.inject_ctl)
}

/// How often each sandbox has spawned. Whoever spawns holds the lock from counting what exists until the
/// new child is among it.
#[derive(Debug, Default)]
pub(crate) struct Children {
    counts: Mutex<HashMap<Address, u32>>,
}

impl Children {
    /// How many children a sandbox ever had, those that are being made included.
    pub(crate) fn spawned(&self, parent: &Address) -> u32 {
        crate::lock(&self.counts).get(parent).copied().unwrap_or(0)
    }

    pub(crate) fn forget(&self, parent: &Address) {
        crate::lock(&self.counts).remove(parent);
    }
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

impl Inner {
    /// What the engine remembers of spawning.
    pub(crate) fn load_spawns(&self) -> Result<()> {
        let mut counts = crate::lock(&self.children.counts);
        for (name, count) in self.journal.spawns()? {
            if let Ok(name) = name.parse() {
                counts.insert(name, count);
            }
        }
        Ok(())
    }

    /// The operator lets a sandbox spawn as if it never had. Returns how many it had.
    pub(crate) fn reset_spawns(&self, context: &CallContext, name: &SandboxName) -> Result<u32> {
        let address = context.address(name);
        let mut counts = crate::lock(&self.children.counts);
        let before = counts.get(&address).copied().unwrap_or(0);
        let detail = serde_json::json!({ "spawned": before });
        self.journal.reset_spawns(&address, &Audit::of_name(context, "reset_spawn_count", name, detail))?;
        isle_fail::pass(isle_fail::Point::SpawnCountReset);
        counts.remove(&address);
        Ok(before)
    }

    /// The policy of a sandbox and that of its whole tree, as the configuration says now.
    pub(crate) fn spawn_policies_of(&self, sandbox: &Sandbox) -> Option<(SpawnPolicy, SpawnPolicy)> {
        let root = self.config.spawn_policies.of(&sandbox.root().name)?;
        let own = match sandbox.child_of() {
            None => root.clone(),
            Some(child) if child.depth < DEEPEST => root.derived()?,
            Some(_) => return None,
        };
        Some((own, root.clone()))
    }

    /// Whether the policy of its tree lets the ports of a child be shown on the host.
    pub(crate) fn child_can_expose(&self, sandbox: &Sandbox) -> bool {
        let policy = self.config.spawn_policies.of(&sandbox.root().name);
        sandbox.child_of().is_some() && policy.is_some_and(|policy| policy.child_can_expose)
    }

    /// All that descends from an incarnation, children before grandchildren, by name.
    pub(crate) fn family(&self, parent: &SandboxId) -> Vec<Arc<Sandbox>> {
        let all = self.fleet.named();
        let of = |parent: &SandboxId| -> Vec<Arc<Sandbox>> {
            let is_own =
                |sandbox: &&Arc<Sandbox>| sandbox.child_of().is_some_and(|child| child.parent_id == *parent);
            all.iter().filter(is_own).cloned().collect()
        };
        let mut family = of(parent);
        let grandchildren: Vec<_> = family.iter().flat_map(|child| of(&child.id)).collect();
        family.extend(grandchildren);
        family
    }

    /// What is in use below a sandbox and in its tree.
    pub(crate) fn spawned_use(&self, parent: &Sandbox) -> InUse {
        let all = self.fleet.named();
        let kin = all.iter().filter_map(|sandbox| {
            let share = Share { cpus: sandbox.spec.limits.cpus, memory: sandbox.spec.limits.memory };
            sandbox.child_of().map(|of| Kin { id: &sandbox.id, of, share })
        });
        InUse::count(&parent.id, &parent.root(), kin)
    }
}
