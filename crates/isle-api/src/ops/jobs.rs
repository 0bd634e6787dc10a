//! Jobs: commands nobody waits for, by name. `logs`, `wait` and `kill` take the name of a job where
//! they take the id of a run, so here is only what is a job's own: starting, listing, writing to it.

use crate::inputs::{Environment, User, argv};
use crate::run_limits::RunLimits;
use crate::shapes::RunState;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{JobName, RunId, RunOrJob, SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct JobShape {
    /// For logs, wait, kill and write_job: SANDBOX:NAME, or the run id.
    pub job: String,
    pub run_id: String,
    pub sandbox: String,
    pub command: String,
    pub state: RunState,
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub started_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    pub pty: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The operation `start_job`.
#[derive(Debug)]
pub struct StartJob;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartInput {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// Unique among the jobs going on in the sandbox; left out, the run id names it.
    pub name: Option<JobName>,
    /// Shell text. Give this or argv.
    pub command: Option<String>,
    #[serde(default, deserialize_with = "argv")]
    pub argv: Option<Vec<String>>,
    pub cwd: Option<String>,
    pub env: Option<Environment>,
    /// First text for standard input.
    pub stdin: Option<String>,
    /// Keep standard input open for write_job.
    pub input: Option<bool>,
    /// Give it a terminal; people can attach to it.
    pub pty: Option<bool>,
    pub user: Option<User>,
    /// Default none.
    pub timeout: Option<Span>,
    pub limits: Option<RunLimits>,
    /// Run alone among runs with lock, in order.
    pub lock: Option<bool>,
    /// Secrets it has as placeholders, such as "KEY" or "KEY=VARIABLE".
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Secrets it has as values, masked in its output.
    #[serde(default)]
    pub expose_secrets: Vec<String>,
}

impl Operation for StartJob {
    type Input = StartInput;
    type Output = JobShape;
    const NAME: &'static str = "start_job";
    const TITLE: &'static str = "Start a job";
    const DESCRIPTION: &'static str = "Start a command that goes on by itself, such as a server. logs, wait and kill take its name (SANDBOX:NAME) as run_id. It outlives this connection and a restart of the daemon.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/jobs" };
    const TOOLSET: Toolset = Toolset::Jobs;
    const EFFECT: Effect = Effect::Changes;
}

/// The operation `list_jobs`.
#[derive(Debug)]
pub struct ListJobs;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListInput {
    /// Left out: all.
    pub sandbox: Option<SandboxName>,
    pub state: Option<RunState>,
    /// Default 50, at most 500.
    pub limit: Option<u32>,
}

/// Jobs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Jobs {
    pub jobs: Vec<JobShape>,
}

impl Operation for ListJobs {
    type Input = ListInput;
    type Output = Jobs;
    const NAME: &'static str = "list_jobs";
    const TITLE: &'static str = "List jobs";
    const DESCRIPTION: &'static str = "Jobs going on and ended, newest first.";
    const ROUTE: Route = Route { method: Method::Get, path: "/jobs" };
    const TOOLSET: Toolset = Toolset::Jobs;
    const EFFECT: Effect = Effect::Reads;
}

/// The operation `write_job`.
#[derive(Debug)]
pub struct WriteJob;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteInput {
    /// The job: SANDBOX:NAME, or the run id.
    pub run_id: RunOrJob,
    /// What to write; end a line with \n.
    pub text: Option<String>,
    /// Bytes instead of text.
    pub base64: Option<String>,
    /// Then end its standard input.
    pub eof: Option<bool>,
}

/// What was written.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Written {
    pub run_id: RunId,
    /// Bytes the job took.
    pub written_bytes: usize,
    /// Bytes it did not read in time; send them again.
    pub unread_bytes: usize,
    /// Whether its standard input was ended.
    pub ended: bool,
}

impl Operation for WriteJob {
    type Input = WriteInput;
    type Output = Written;
    const NAME: &'static str = "write_job";
    const TITLE: &'static str = "Write to a job";
    const DESCRIPTION: &'static str =
        "Write to the standard input of a job that was started with input or pty. See its answer with logs.";
    const ROUTE: Route = Route { method: Method::Post, path: "/runs/{run_id}/input" };
    const TOOLSET: Toolset = Toolset::Jobs;
    const EFFECT: Effect = Effect::Changes;
}
