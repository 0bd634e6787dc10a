//! `list`: the named sandboxes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::times::timestamp;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::Tier;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::sandbox::{Sandbox, SandboxState};
use crate::values::{SandboxId, SandboxName};

pub(super) struct List;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {}

/// A sandbox at a glance.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct SandboxBrief {
    name: SandboxName,
    id: SandboxId,
    state: SandboxState,
    tier: Tier,
    image: String,
    running_runs: usize,
    created_at: String,
    last_used_at: String,
    /// Whose child it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<SandboxName>,
    /// The configuration changed; made anew when idle.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    drifted: bool,
}

impl SandboxBrief {
    pub(super) fn of(sandbox: &Sandbox) -> Self {
        Self {
            name: sandbox.name.clone(),
            id: sandbox.id.clone(),
            state: sandbox.state(),
            tier: sandbox.spec.tier,
            image: sandbox.spec.image.clone(),
            running_runs: sandbox.running(),
            created_at: timestamp(sandbox.created_at_ms),
            last_used_at: timestamp(sandbox.last_used_ms()),
            parent: sandbox.child_of().map(|child| child.parent.clone()),
            drifted: sandbox.drifted(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// By name.
    sandboxes: Vec<SandboxBrief>,
    /// Sandboxes for one command that exist now.
    one_shots: usize,
}

impl Operation for List {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "list";
    const TITLE: &'static str = "List sandboxes";
    const DESCRIPTION: &'static str = "All named sandboxes with their state.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, _: CallContext, _: Input) -> Result<Output> {
        let sandboxes = engine.inner.fleet.named().iter().map(|sandbox| SandboxBrief::of(sandbox)).collect();
        Ok(Output { sandboxes, one_shots: engine.inner.fleet.one_shots() })
    }
}
