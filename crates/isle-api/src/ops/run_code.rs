//! `run_code`: code in a language, in a named sandbox.

use crate::inputs::{Environment, User};
use crate::run_limits::RunLimits;
use crate::shapes::RunResult;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{ByteSize, ContextName, GuestPath, SandboxName, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// The operation `run_code`.
#[derive(Debug)]
pub struct RunCode;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    /// The code. Give this or path.
    pub code: Option<String>,
    /// File in the sandbox to run.
    pub path: Option<GuestPath>,
    /// python, node or shell; else detected.
    pub language: Option<String>,
    /// Arguments of the code.
    pub args: Option<Vec<String>>,
    pub cwd: Option<String>,
    pub env: Option<Environment>,
    pub stdin: Option<String>,
    pub user: Option<User>,
    pub timeout: Option<Span>,
    pub limits: Option<RunLimits>,
    pub lock: Option<bool>,
    pub wait: Option<Span>,
    pub output_limit: Option<ByteSize>,
    /// Shell only: no cd, no redirects, no paths.
    pub restricted: Option<bool>,
    /// Keeps variables and cwd under this name.
    pub context: Option<ContextName>,
    /// Installed first, by pip or npm.
    pub packages: Option<Vec<String>>,
}

impl Operation for RunCode {
    type Input = Input;
    type Output = RunResult;
    const NAME: &'static str = "run_code";
    const TITLE: &'static str = "Run code";
    const DESCRIPTION: &'static str = "Run Python, Node or shell code, by text or file; values, tables and figures come back. With context, variables stay. Other arguments as in exec.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/code" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Changes;
}
