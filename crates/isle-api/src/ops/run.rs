//! `run`: a command in a fresh sandbox that is gone afterwards.

use super::write_files::FileInput;
use crate::inputs::{Environment, User, argv, files};
use crate::run_limits::RunLimits;
use crate::shapes::RunResult;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::{BackendName, Tier};
use isle_core::values::{ByteSize, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// The operation `run`.
#[derive(Debug)]
pub struct RunOnce;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Shell text. Give this, argv or code.
    pub command: Option<String>,
    /// Program and arguments, no shell.
    #[serde(default, deserialize_with = "argv")]
    pub argv: Option<Vec<String>>,
    /// Code in a language.
    pub code: Option<String>,
    /// python, node or shell; detected when left out.
    pub language: Option<String>,
    /// Files placed before the command starts.
    #[serde(default, deserialize_with = "files")]
    pub files: Vec<FileInput>,
    /// Absolute; default /workspace.
    pub cwd: Option<String>,
    /// Extra variables.
    pub env: Option<Environment>,
    /// Text for standard input.
    pub stdin: Option<String>,
    /// As whom: sandbox (default) or root of the sandbox.
    pub user: Option<User>,
    /// Ends the whole tree after.
    pub timeout: Option<Span>,
    /// Of each process, e.g. {"cpu": "10s", "memory": "64M"}.
    pub limits: Option<RunLimits>,
    /// Answer after this at the latest; the run goes on.
    pub wait: Option<Span>,
    /// Output in the answer.
    pub output_limit: Option<ByteSize>,
    /// How strongly isolated.
    pub tier: Option<Tier>,
    /// Which backend creates it.
    pub backend: Option<BackendName>,
    /// Which image.
    pub image: Option<String>,
    /// Memory limit.
    pub memory: Option<ByteSize>,
    /// CPUs, such as 0.5.
    pub cpus: Option<f64>,
    /// Limit on processes and threads.
    pub pids: Option<u32>,
    /// Limit on what it writes.
    pub disk: Option<ByteSize>,
    /// Accept less than the tier promises where the host cannot do it.
    pub allow_downgrade: Option<bool>,
    /// Settings under a name of the configuration; what is given here is stronger.
    pub profile: Option<String>,
    /// What it may reach, such as "example.com:443".
    #[serde(default)]
    pub allow: Vec<String>,
    /// Secrets it has as placeholders, such as "KEY" or "KEY=VARIABLE".
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Secrets it has as values, masked in its output.
    #[serde(default)]
    pub expose_secrets: Vec<String>,
    /// Python or Node packages, installed before the code runs.
    pub packages: Option<Vec<String>>,
}

impl Operation for RunOnce {
    type Input = Input;
    type Output = RunResult;
    const NAME: &'static str = "run";
    const TITLE: &'static str = "Run once";
    const DESCRIPTION: &'static str = "Run a command in a fresh sandbox that is gone afterwards.";
    const ROUTE: Route = Route { method: Method::Post, path: "/runs" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Changes;
}
