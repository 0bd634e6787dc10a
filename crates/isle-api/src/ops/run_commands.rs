//! `run_commands`: several commands in one run, in order. The first failure ends the run unless it is
//! allowed.

use crate::inputs::{Environment, User, argv};
use crate::run_limits::RunLimits;
use crate::shapes::RunResult;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{ByteSize, SandboxName, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// The operation `run_commands`.
#[derive(Debug)]
pub struct RunCommands;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// In order; each in a fresh shell.
    pub commands: Vec<OneCommand>,
    /// Go on after a failure; the run still counts as failed.
    pub continue_on_error: Option<bool>,
    pub cwd: Option<String>,
    pub env: Option<Environment>,
    pub user: Option<User>,
    /// For all of them together.
    pub timeout: Option<Span>,
    pub limits: Option<RunLimits>,
    /// Run alone among runs with lock, in order.
    pub lock: Option<bool>,
    /// Answer after this at the latest; the run goes on.
    pub wait: Option<Span>,
    pub output_limit: Option<ByteSize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct OneCommand {
    pub command: Option<String>,
    #[serde(default, deserialize_with = "argv")]
    pub argv: Option<Vec<String>>,
    pub cwd: Option<String>,
    pub env: Option<Environment>,
    /// A failure of this one does not count.
    pub allow_failure: Option<bool>,
}

impl Operation for RunCommands {
    type Input = Input;
    type Output = RunResult;
    const NAME: &'static str = "run_commands";
    const TITLE: &'static str = "Run several commands";
    const DESCRIPTION: &'static str = "Run several commands in order, as one run. The first failure ends it, unless allow_failure or continue_on_error; the result tells of each. Other arguments as in exec.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/commands" };
    const TOOLSET: Toolset = Toolset::Jobs;
    const EFFECT: Effect = Effect::Changes;
}
