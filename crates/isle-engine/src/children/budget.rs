//! What a child asks for and whether there is room for it. Pure arithmetic: who calls holds the lock
//! under which sandboxes are counted and put in place, so that two spawns never share the same room.

use super::policy::SpawnPolicy;
use isle_core::backend::{ChildOf, Limits};
use isle_core::values::{Address, ByteSize, SandboxId};
use isle_core::{Code, Error, Result};

/// The least memory worth asking for.
const LEAST_MEMORY: ByteSize = ByteSize::mib(64);

/// What one child has or is to have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share {
    pub(crate) cpus: f64,
    pub(crate) memory: ByteSize,
}

impl Share {
    /// What a child gets that asks for these: never more than the policy allows for one child, and never
    /// more than its parent has.
    pub(crate) fn asked(
        policy: &SpawnPolicy,
        parent: &Limits,
        cpus: Option<f64>,
        memory: Option<ByteSize>,
    ) -> Result<Self> {
        let refuse = |what: &str, next: &str| Err(Error::new(Code::InvalidArgument, what).next(next));
        if cpus.is_some_and(|cpus| !cpus.is_finite() || cpus < 1.0) {
            return refuse("a child needs at least one CPU", "ask for cpus of 1 or more, or leave it away");
        }
        if memory.is_some_and(|memory| memory < LEAST_MEMORY) {
            return refuse("a child needs at least 64M of memory", "ask for more, or leave it away");
        }
        let most_cpus = policy.child_max_cpus.min(parent.cpus);
        let most_memory = policy.child_max_memory.min(parent.memory);
        Ok(Self {
            cpus: cpus.unwrap_or(most_cpus).min(most_cpus),
            memory: memory.unwrap_or(most_memory).min(most_memory),
        })
    }
}

/// What is in use below a parent, and in the whole tree it belongs to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InUse {
    /// Its own children.
    pub(crate) children: u32,
    /// Of all that descends from the parent.
    pub(crate) cpus: f64,
    pub(crate) memory: u64,
    /// Of all that descends from the root.
    pub(crate) tree_cpus: f64,
    pub(crate) tree_memory: u64,
}

/// Somebody's child, as far as counting goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kin<'a> {
    pub(crate) id: &'a SandboxId,
    pub(crate) of: &'a ChildOf,
    pub(crate) share: Share,
}

impl InUse {
    /// Counts everybody's children for one parent.
    pub(crate) fn count<'a>(
        parent: &SandboxId,
        root: &Address,
        everybody: impl Iterator<Item = Kin<'a>> + Clone,
    ) -> Self {
        let mut used = Self::default();
        let is_child_of = |kin: &Kin<'a>, id: &SandboxId| kin.of.parent_id == *id;
        for kin in everybody.clone() {
            if kin.of.root == *root {
                used.tree_cpus += kin.share.cpus;
                used.tree_memory = used.tree_memory.saturating_add(kin.share.memory.0);
            }
            let own = is_child_of(&kin, parent);
            // Trees have two generations of children, so looking two steps down is looking everywhere.
            let below = own
                || everybody.clone().any(|child| is_child_of(&child, parent) && is_child_of(&kin, child.id));
            if below {
                used.cpus += kin.share.cpus;
                used.memory = used.memory.saturating_add(kin.share.memory.0);
            }
            used.children += u32::from(own);
        }
        used
    }

    /// Whether one more child fits; `spawned` are those that were ever made or are being made, `root` is the policy of the
    /// whole tree.
    pub(crate) fn admit(
        &self,
        policy: &SpawnPolicy,
        root: &SpawnPolicy,
        spawned: u32,
        wanted: Share,
    ) -> Result<()> {
        let refuse = |limit: &str, what: String, next: &str| {
            Err(Error::new(Code::LimitReached, what).detail("limit", limit).next(next))
        };
        let gone = "destroy children that are no longer needed, or wait until they end";
        if spawned >= policy.max_total {
            return refuse(
                "max_total",
                format!("all {} children this sandbox may ever have were spawned", policy.max_total),
                "ask the operator to set the count back (`isle children --reset-count`) or to raise max_total",
            );
        }
        if self.children >= policy.max_concurrent {
            let what = format!("{} children exist, and no more may at once", self.children);
            return refuse("max_concurrent", what, gone);
        }
        // Sums of a few numbers as people write them; a hair's breadth is no excess.
        let exceeds = |used: f64, most: f64| used + wanted.cpus > most + 1e-6;
        if exceeds(self.cpus, policy.total_child_cpus) {
            let what = format!("children have {} CPUs of {}", self.cpus, policy.total_child_cpus);
            return refuse("total_child_cpus", what, gone);
        }
        let memory = |used: u64| ByteSize(used.saturating_add(wanted.memory.0));
        if memory(self.memory) > policy.total_child_memory {
            let what = format!("children have {} of {}", ByteSize(self.memory), policy.total_child_memory);
            return refuse("total_child_memory", what, gone);
        }
        if exceeds(self.tree_cpus, root.total_child_cpus) {
            let what = format!("the whole tree has {} CPUs of {}", self.tree_cpus, root.total_child_cpus);
            return refuse("tree_cpus", what, gone);
        }
        if memory(self.tree_memory) > root.total_child_memory {
            let what =
                format!("the whole tree has {} of {}", ByteSize(self.tree_memory), root.total_child_memory);
            return refuse("tree_memory", what, gone);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
