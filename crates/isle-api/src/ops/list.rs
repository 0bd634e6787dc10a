//! `list`: the named sandboxes.

use crate::shapes::SandboxState;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::{BackendName, Tier};
use isle_core::values::{SandboxId, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `list`.
#[derive(Debug)]
pub struct List;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {}

/// A sandbox at a glance.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SandboxBrief {
    pub name: SandboxName,
    pub id: SandboxId,
    pub state: SandboxState,
    pub backend: BackendName,
    pub tier: Tier,
    pub image: String,
    pub running_runs: usize,
    pub created_at: String,
    pub last_used_at: String,
    /// When its TTL has passed and it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it is removed if nobody uses it until then; left out while it is used or paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_expires_at: Option<String>,
    /// The profile it was made by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Commands so far.
    pub runs: u64,
    /// Whose child it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SandboxName>,
    /// The configuration changed; made anew when idle.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drifted: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// By name.
    pub sandboxes: Vec<SandboxBrief>,
    /// Sandboxes for one command that exist now.
    pub one_shots: usize,
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
}
