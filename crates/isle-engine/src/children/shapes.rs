//! Children as they are answered: to callers, and to the parent through its control socket.

use isle_api::ops::children::{ChildBrief, Family, Used};
use isle_api::timestamp;
use isle_core::clock::wall_clock_ms;
use isle_core::values::ByteSize;

use super::{Children, SpawnPolicy};
use crate::sandbox::Sandbox;

/// A child at a glance.
pub(crate) fn child_brief(sandbox: &Sandbox) -> ChildBrief {
    let (now, of) = (wall_clock_ms(), sandbox.child_of());
    let seconds = |millis: i64| u64::try_from(millis / 1000).unwrap_or(0);
    let idle = if sandbox.running() > 0 { 0 } else { seconds(now - sandbox.last_used_ms()) };
    ChildBrief {
        name: sandbox.name.clone(),
        id: sandbox.id.clone(),
        parent: of.map(|child| child.parent.name.clone()),
        depth: of.map_or(0, |child| child.depth),
        state: sandbox.shown_state(),
        tier: sandbox.spec.tier,
        image: sandbox.spec.image.clone(),
        cpus: sandbox.spec.limits.cpus,
        memory: sandbox.spec.limits.memory,
        expires_at: of.map(|child| timestamp(child.expires_at_ms)),
        ttl_seconds: of.map_or(0, |child| seconds(child.expires_at_ms - now)),
        idle_seconds: idle,
        running_runs: sandbox.running(),
    }
}

/// The same without grandchildren, as the parent itself sees it.
pub(crate) fn own_family_shape(children: &Children, parent: &Sandbox) -> Family {
    let mut family = family_shape(children, parent);
    family.children.retain(|child| child.parent.as_ref() == Some(&parent.name));
    family
}

/// What descends from a sandbox.
pub(crate) fn family_shape(children: &Children, parent: &Sandbox) -> Family {
    let policy = children.policies_of(parent).map(|(own, _)| own);
    let used = children.in_use(parent);
    let allowed = |count: fn(&SpawnPolicy) -> u32| policy.as_ref().map_or(0, count);
    Family {
        parent: parent.name.clone(),
        may_spawn: policy.is_some(),
        total: Used { used: children.spawned(&parent.address()), limit: allowed(|policy| policy.max_total) },
        concurrent: Used { used: used.children, limit: allowed(|policy| policy.max_concurrent) },
        cpus: Used { used: used.cpus, limit: policy.as_ref().map_or(0.0, |policy| policy.total_child_cpus) },
        memory: Used {
            used: ByteSize(used.memory),
            limit: policy.as_ref().map_or(ByteSize(0), |policy| policy.total_child_memory),
        },
        children: children.family(&parent.id).iter().map(|child| child_brief(child)).collect(),
    }
}
