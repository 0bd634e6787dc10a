//! `inspect`: what a sandbox holds and what goes on in it, without running anything.

use super::list::SandboxBrief;
use super::secrets::AttachedShape;
use super::sync::SyncShape;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::Limits;
use isle_core::values::{RunId, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `inspect`.
#[derive(Debug)]
pub struct Inspect;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Left out: all.
    pub sandbox: Option<SandboxName>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Variable {
    pub name: String,
    /// `***` when the name looks like that of a secret.
    pub value: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ContextBrief {
    pub name: String,
    /// python, node or shell.
    pub language: &'static str,
    pub alive: bool,
    pub calls: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Going {
    pub run_id: RunId,
    /// Its name among the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    pub command: String,
    pub elapsed_ms: u64,
    /// Waits for the lock of the sandbox.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Inspected {
    /// With its deadlines.
    #[serde(flatten)]
    pub brief: SandboxBrief,
    pub limits: Limits,
    /// Set with `env`; what a call brings along is in its run.
    pub variables: Vec<Variable>,
    /// Secrets every command has; never values.
    pub secrets: Vec<AttachedShape>,
    pub contexts: Vec<ContextBrief>,
    /// Runs and jobs going on.
    pub running: Vec<Going>,
    /// Jobs on record, also those that ended.
    pub jobs: usize,
    pub syncs: Vec<SyncShape>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandboxes: Vec<Inspected>,
    /// How many there are.
    pub total: usize,
}

impl Operation for Inspect {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "inspect";
    const TITLE: &'static str = "Inspect sandboxes";
    const DESCRIPTION: &'static str = "What a sandbox holds: variables with secret values masked, contexts, runs and jobs going on, syncs, limits, deadlines. One sandbox, or all.";
    const ROUTE: Route = Route { method: Method::Get, path: "/inspect" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Reads;
}
