//! `children`, `destroy_child` and `reset_spawn_count`: what descends from a sandbox, and its end.

use std::sync::Arc;

use isle_store::wall_clock_ms;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::times::timestamp;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::Tier;
use crate::context::CallContext;
use crate::engine::{Engine, Inner};
use crate::error::{Code, Error, Result};
use crate::sandbox::{Sandbox, SandboxState};
use crate::values::{ByteSize, SandboxId, SandboxName};

/// A child at a glance.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct ChildBrief {
    name: SandboxName,
    id: SandboxId,
    parent: Option<SandboxName>,
    /// 1 for a child, 2 for a grandchild.
    depth: u8,
    state: SandboxState,
    tier: Tier,
    image: String,
    cpus: f64,
    memory: ByteSize,
    /// When it ends by itself.
    expires_at: Option<String>,
    /// Seconds until then.
    ttl_seconds: u64,
    /// Seconds since it was last used; 0 while something runs.
    idle_seconds: u64,
    running_runs: usize,
}

impl ChildBrief {
    pub(crate) fn of(sandbox: &Sandbox) -> Self {
        let (now, of) = (wall_clock_ms(), sandbox.child_of());
        let seconds = |millis: i64| u64::try_from(millis / 1000).unwrap_or(0);
        let idle = if sandbox.running() > 0 { 0 } else { seconds(now - sandbox.last_used_ms()) };
        Self {
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
}

/// How much of something is used.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Used<T> {
    used: T,
    /// As the policy allows now; nothing without one.
    limit: T,
}

/// What descends from a sandbox.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Family {
    parent: SandboxName,
    /// Whether a policy lets it spawn.
    may_spawn: bool,
    /// Children it ever had.
    total: Used<u32>,
    /// Children it has.
    concurrent: Used<u32>,
    /// Of all that descends from it.
    cpus: Used<f64>,
    /// Of all that descends from it.
    memory: Used<ByteSize>,
    /// Children, then grandchildren.
    children: Vec<ChildBrief>,
}

impl Family {
    /// The same without grandchildren, as the parent itself sees it.
    pub(crate) fn own(inner: &Inner, parent: &Sandbox) -> Self {
        let mut family = Self::of(inner, parent);
        family.children.retain(|child| child.parent.as_ref() == Some(&parent.name));
        family
    }

    pub(crate) fn of(inner: &Inner, parent: &Sandbox) -> Self {
        let policy = inner.spawn_policies_of(parent).map(|(own, _)| own);
        let used = inner.spawned_use(parent);
        let allowed = |count: fn(&crate::engine::SpawnPolicy) -> u32| policy.as_ref().map_or(0, count);
        Self {
            parent: parent.name.clone(),
            may_spawn: policy.is_some(),
            total: Used {
                used: inner.children.spawned(&parent.address()),
                limit: allowed(|policy| policy.max_total),
            },
            concurrent: Used { used: used.children, limit: allowed(|policy| policy.max_concurrent) },
            cpus: Used {
                used: used.cpus,
                limit: policy.as_ref().map_or(0.0, |policy| policy.total_child_cpus),
            },
            memory: Used {
                used: ByteSize(used.memory),
                limit: policy.as_ref().map_or(ByteSize(0), |policy| policy.total_child_memory),
            },
            children: inner.family(&parent.id).iter().map(|child| ChildBrief::of(child)).collect(),
        }
    }
}

fn known(inner: &Inner, context: &CallContext, parent: Option<SandboxName>) -> Result<Arc<Sandbox>> {
    let parent = context.address(&parent.unwrap_or_else(SandboxName::default_sandbox));
    inner.fleet.get(&parent).ok_or_else(|| inner.no_such_sandbox(&parent))
}

pub(super) struct Children;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChildrenInput {
    /// Whose, default "default".
    parent: Option<SandboxName>,
}

impl Operation for Children {
    type Input = ChildrenInput;
    type Output = Family;
    const NAME: &'static str = "children";
    const TITLE: &'static str = "List child sandboxes";
    const DESCRIPTION: &'static str = "Children and grandchildren of a sandbox with the time they have left, and how much of its spawn budget is used.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{parent}/children" };
    const TOOLSET: Toolset = Toolset::Children;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: ChildrenInput) -> Result<Family> {
        let parent = known(&engine.inner, &context, input.parent)?;
        Ok(Family::of(&engine.inner, &parent))
    }
}

pub(super) struct DestroyChild;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DestroyInput {
    /// The child or grandchild.
    child: SandboxName,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Destroyed {
    child: SandboxName,
    parent: SandboxName,
    /// All that went with it, by name.
    descendants: Vec<SandboxName>,
}

impl Operation for DestroyChild {
    type Input = DestroyInput;
    type Output = Destroyed;
    const NAME: &'static str = "destroy_child";
    const TITLE: &'static str = "Destroy a child sandbox";
    const DESCRIPTION: &'static str = "Destroy a child or grandchild with its workspace and all that descends from it. Other sandboxes are refused.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/children/{child}" };
    const TOOLSET: Toolset = Toolset::Children;
    const EFFECT: Effect = Effect::Destroys;

    async fn call(engine: Engine, context: CallContext, input: DestroyInput) -> Result<Destroyed> {
        let inner = &engine.inner;
        let address = context.address(&input.child);
        let child = inner.fleet.get(&address).ok_or_else(|| inner.no_such_sandbox(&address))?;
        let Some(of) = child.child_of().cloned() else {
            return Err(Error::new(Code::PermissionDenied, format!("{} is nobody's child", child.name))
                .next("`destroy` removes it, if that is what you want"));
        };
        let descendants = inner.family(&child.id).iter().map(|sandbox| sandbox.name.clone()).collect();
        let parent = of.parent.name.clone();
        inner.destroy_child(&context, of).await?;
        Ok(Destroyed { child: input.child, parent, descendants })
    }
}

pub(super) struct ResetSpawnCount;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CountReset {
    parent: SandboxName,
    /// What the count was.
    before: u32,
}

impl Operation for ResetSpawnCount {
    type Input = ChildrenInput;
    type Output = CountReset;
    const NAME: &'static str = "reset_spawn_count";
    const TITLE: &'static str = "Let a sandbox spawn anew";
    const DESCRIPTION: &'static str =
        "Set the count of children a sandbox ever had back to nothing. Children that exist stay.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{parent}/children/reset_count" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Idempotent;

    async fn call(engine: Engine, context: CallContext, input: ChildrenInput) -> Result<CountReset> {
        context.operator_only("the count of children")?;
        let parent = known(&engine.inner, &context, input.parent)?.name.clone();
        let before = engine.inner.reset_spawns(&context, &parent)?;
        Ok(CountReset { parent, before })
    }
}
