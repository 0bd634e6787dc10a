//! `health`: the daemon at a glance.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::{BackendName, Capabilities, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `health`.
#[derive(Debug)]
pub struct Health;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// ok, or stopping.
    pub status: &'static str,
    /// Version of the engine.
    pub version: &'static str,
    /// Since when it runs; told to the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime_seconds: Option<u64>,
    /// Named sandboxes.
    pub sandboxes: usize,
    /// Of those, the ones that died.
    pub failed_sandboxes: usize,
    /// Sandboxes for one command that exist now.
    pub one_shots: usize,
    /// Commands going on.
    pub running: usize,
    /// Calls waiting for their turn.
    pub waiting: usize,
    /// What became of sandboxes whose time was up; told to the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweeper: Option<SweeperHealth>,
    /// Backends and tiers of this host.
    pub tiers: Vec<TierHealth>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SweeperHealth {
    /// Times it looked.
    pub passes: u64,
    /// Removed because their TTL had passed.
    pub expired: u64,
    /// Removed because nobody used them.
    pub idle: u64,
    /// Removals that failed; they are tried again.
    pub failures: u64,
    /// How long the last look at all sandboxes took, in microseconds.
    pub last_look_us: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct TierHealth {
    /// Which backend.
    pub backend: BackendName,
    /// Which tier.
    pub tier: Tier,
    /// What its sandboxes can do.
    pub capabilities: Capabilities,
    /// Whether everything the tier promises is enforced.
    pub available: bool,
    /// Whether sandboxes can be created with a downgrade.
    pub available_with_downgrade: bool,
    /// Why not, when it does not.
    pub reasons: Vec<String>,
}

impl Operation for Health {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "health";
    const TITLE: &'static str = "Health";
    const DESCRIPTION: &'static str = "Version, counts and tiers of the daemon.";
    const ROUTE: Route = Route { method: Method::Get, path: "/health" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Reads;
}
