//! `pause` and `resume`: everything in a sandbox stands still, and goes on.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{SandboxId, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `pause`.
#[derive(Debug)]
pub struct Pause;

/// The operation `resume`.
#[derive(Debug)]
pub struct Resume;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: SandboxName,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandbox: SandboxName,
    pub id: SandboxId,
    /// paused or running; already_paused or already_running when nothing had to be done.
    pub state: &'static str,
    /// How many processes stopped, or go on.
    pub processes: u64,
}

impl Operation for Pause {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "pause";
    const TITLE: &'static str = "Pause a sandbox";
    const DESCRIPTION: &'static str = "Stop everything that runs in a sandbox, jobs and contexts too, until resume. It keeps its memory; its files can be used meanwhile; its TTL goes on.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/pause" };
    const TOOLSET: Toolset = Toolset::Lifecycle;
    const EFFECT: Effect = Effect::Idempotent;
}

impl Operation for Resume {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "resume";
    const TITLE: &'static str = "Resume a sandbox";
    const DESCRIPTION: &'static str = "Let everything in a paused sandbox go on where it stood.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/resume" };
    const TOOLSET: Toolset = Toolset::Lifecycle;
    const EFFECT: Effect = Effect::Idempotent;
}
