//! `children`, `destroy_child` and `reset_spawn_count`: what descends from a sandbox, and its end.

use crate::shapes::SandboxState;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::Tier;
use isle_core::values::{ByteSize, SandboxId, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A child at a glance.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ChildBrief {
    pub name: SandboxName,
    pub id: SandboxId,
    pub parent: Option<SandboxName>,
    /// 1 for a child, 2 for a grandchild.
    pub depth: u8,
    pub state: SandboxState,
    pub tier: Tier,
    pub image: String,
    pub cpus: f64,
    pub memory: ByteSize,
    /// When it ends by itself.
    pub expires_at: Option<String>,
    /// Seconds until then.
    pub ttl_seconds: u64,
    /// Seconds since it was last used; 0 while something runs.
    pub idle_seconds: u64,
    pub running_runs: usize,
}

/// How much of something is used.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Used<T> {
    pub used: T,
    /// As the policy allows now; nothing without one.
    pub limit: T,
}

/// What descends from a sandbox.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Family {
    pub parent: SandboxName,
    /// Whether a policy lets it spawn.
    pub may_spawn: bool,
    /// Children it ever had.
    pub total: Used<u32>,
    /// Children it has.
    pub concurrent: Used<u32>,
    /// Of all that descends from it.
    pub cpus: Used<f64>,
    /// Of all that descends from it.
    pub memory: Used<ByteSize>,
    /// Children, then grandchildren.
    pub children: Vec<ChildBrief>,
}

/// The operation `children`.
#[derive(Debug)]
pub struct Children;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChildrenInput {
    /// Whose, default "default".
    pub parent: Option<SandboxName>,
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
}

/// The operation `destroy_child`.
#[derive(Debug)]
pub struct DestroyChild;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DestroyInput {
    /// The child or grandchild.
    pub child: SandboxName,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Destroyed {
    pub child: SandboxName,
    pub parent: SandboxName,
    /// All that went with it, by name.
    pub descendants: Vec<SandboxName>,
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
}

/// The operation `reset_spawn_count`.
#[derive(Debug)]
pub struct ResetSpawnCount;

#[derive(Debug, Serialize, JsonSchema)]
pub struct CountReset {
    pub parent: SandboxName,
    /// What the count was.
    pub before: u32,
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
}
