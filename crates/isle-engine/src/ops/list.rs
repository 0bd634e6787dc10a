//! `list`: the named sandboxes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::times::timestamp;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::Tier;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::sandbox::{Sandbox, SandboxState, on_the_wall};
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
    /// When its TTL has passed and it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// When it is removed if nobody uses it until then; left out while it is used or paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_expires_at: Option<String>,
    /// The profile it was made by.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    /// Commands so far.
    runs: u64,
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
            state: sandbox.shown_state(),
            tier: sandbox.spec.tier,
            image: sandbox.spec.image.clone(),
            running_runs: sandbox.running(),
            created_at: timestamp(sandbox.created_at_ms),
            last_used_at: timestamp(sandbox.last_used_ms()),
            // A child has the time it was given, by the wall clock.
            expires_at: match sandbox.child_of() {
                Some(child) => Some(timestamp(child.expires_at_ms)),
                None => sandbox.lease.expires().map(on_the_wall).map(timestamp),
            },
            idle_expires_at: sandbox.lease.idle_until().map(on_the_wall).map(timestamp),
            profile: sandbox.profile.as_ref().map(|profile| profile.name.clone()),
            runs: sandbox.lease.runs(),
            parent: sandbox.child_of().map(|child| child.parent.name.clone()),
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

    async fn call(engine: Engine, context: CallContext, _: Input) -> Result<Output> {
        let fleet = &engine.inner.fleet;
        let sandboxes =
            fleet.named_in(&context.namespace).iter().map(|sandbox| SandboxBrief::of(sandbox)).collect();
        Ok(Output { sandboxes, one_shots: fleet.one_shots_in(&context.namespace) })
    }
}
