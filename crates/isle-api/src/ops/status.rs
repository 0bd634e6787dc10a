//! `status`: one sandbox in detail, or all of them at a glance.

use super::list::SandboxBrief;
use super::sync::SyncShape;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::{GuaranteeStatus, Limits, Usage};
use isle_core::values::{RunId, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `status`.
#[derive(Debug)]
pub struct Status;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Left out: all.
    pub sandbox: Option<SandboxName>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandboxes: Vec<SandboxBrief>,
    /// How many there are.
    pub total: usize,
    /// Of the sandbox asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Detail {
    pub limits: Limits,
    pub usage: Usage,
    pub runs: Vec<RunningRun>,
    /// Directories that follow one of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub syncs: Vec<SyncShape>,
    /// What is enforced, line by line.
    pub containment: Vec<Line>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RunningRun {
    pub run_id: RunId,
    pub command: String,
    pub elapsed_ms: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Line {
    pub key: String,
    pub status: GuaranteeStatus,
    pub how: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

impl Operation for Status {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "status";
    const TITLE: &'static str = "Status";
    const DESCRIPTION: &'static str =
        "All sandboxes, or one in detail: state, limits, usage, running runs, what is enforced.";
    const ROUTE: Route = Route { method: Method::Get, path: "/status" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Reads;
}
