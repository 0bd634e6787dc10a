//! `exec`: a command in a named sandbox.

use crate::inputs::{Environment, User, argv};
use crate::run_limits::RunLimits;
use crate::shapes::RunResult;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::BackendName;
use isle_core::values::{ByteSize, SandboxName, Span, Term};
use schemars::JsonSchema;
use serde::Deserialize;

/// The operation `exec`.
#[derive(Debug)]
pub struct Exec;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Default "default"; made on first use.
    pub sandbox: Option<SandboxName>,
    /// Shell text. Give this or argv.
    pub command: Option<String>,
    /// Without a shell.
    #[serde(default, deserialize_with = "argv")]
    pub argv: Option<Vec<String>>,
    /// Absolute; default /workspace.
    pub cwd: Option<String>,
    /// Extra variables.
    pub env: Option<Environment>,
    /// For standard input.
    pub stdin: Option<String>,
    pub user: Option<User>,
    /// E.g. "30s".
    pub timeout: Option<Span>,
    /// Of each process.
    pub limits: Option<RunLimits>,
    /// One at a time, in order.
    pub lock: Option<bool>,
    /// Answer after this at most.
    pub wait: Option<Span>,
    /// E.g. "8K" of output in the answer.
    pub output_limit: Option<ByteSize>,
    /// Of a new sandbox.
    pub ttl: Option<Term>,
    pub idle: Option<Term>,
    pub resume: Option<bool>,
    pub profile: Option<String>,
    pub backend: Option<BackendName>,
    /// E.g. "KEY" or "KEY=VARIABLE".
    #[serde(default)]
    pub secrets: Vec<String>,
    #[serde(default)]
    pub expose_secrets: Vec<String>,
}

impl Operation for Exec {
    type Input = Input;
    type Output = RunResult;
    const NAME: &'static str = "exec";
    const TITLE: &'static str = "Run a command";
    const DESCRIPTION: &'static str = "Run a command in an isolated Linux sandbox. Files in /workspace and installed packages stay; every call is a fresh shell. Network only where granted. A long run answers state=running: use wait, logs, kill.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/exec" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Changes;
}
