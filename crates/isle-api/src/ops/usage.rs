//! `usage`: what sandboxes and runs took of the host.

use crate::shapes::RunState;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::Limits;
use isle_core::values::{RunId, RunOrJob, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum MeasuredBy {
    /// The kernel, for the whole sandbox.
    Cgroups,
    /// There are no cgroups: the agent, by looking at all processes.
    Processes,
    /// Neither can be asked: the sum of what was seen of runs that have ended.
    EndedRuns,
}

/// The operation `usage`.
#[derive(Debug)]
pub struct Usage;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Left out: all.
    pub sandbox: Option<SandboxName>,
    /// Of one run instead.
    pub run_id: Option<RunOrJob>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SandboxUsage {
    pub name: SandboxName,
    pub uptime_seconds: i64,
    /// Runs of this incarnation among the newest on record.
    pub runs: u64,
    pub running_runs: usize,
    pub measured_by: MeasuredBy,
    pub cpu_ms: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub io_read_bytes: Option<u64>,
    pub io_write_bytes: Option<u64>,
    /// Why those two are not known, or are not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_note: Option<&'static str>,
    /// Through its gate, since the daemon began to serve it.
    pub network_sent_bytes: u64,
    pub network_received_bytes: u64,
    pub network_connections: u64,
    /// Names, connections and requests that were denied.
    pub network_denied: u64,
    pub pids: Option<u32>,
    pub disk_bytes: Option<u64>,
    pub oom_kills: Option<u64>,
    /// What it may have.
    pub limits: Limits,
    /// What runs wrote to standard output and error.
    pub output_bytes: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RunUsage {
    pub run_id: RunId,
    pub sandbox: String,
    pub state: RunState,
    pub duration_ms: Option<u64>,
    /// CPU time of all its processes; known when it has ended.
    pub cpu_ms: Option<u64>,
    /// Highest memory of its largest process; known when it has ended.
    pub peak_memory_bytes: Option<u64>,
    /// From disks, by its processes; known when it has ended.
    pub io_read_bytes: Option<u64>,
    /// To files on disks, by its processes; known when it has ended.
    pub io_write_bytes: Option<u64>,
    /// Through the gate of its sandbox, from its begin to its end; known then, and not when another daemon
    /// was there at the begin.
    pub network: Option<NetworkUsage>,
    /// The most processes and threads of it that were seen at once, by looking now and then; known when it
    /// has ended.
    pub peak_pids: Option<u64>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

/// What went through the gate of a sandbox while a run went on.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct NetworkUsage {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Names, connections and requests that were denied.
    pub denied: u64,
    /// Other runs went on in the sandbox at the same time: what they moved is in these numbers, too.
    pub shared: bool,
}

/// The line in front of commands.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Queue {
    pub running: usize,
    pub waiting: usize,
    /// Since the daemon started.
    pub admitted: u64,
    /// Since then: told to come again.
    pub refused: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandboxes: Vec<SandboxUsage>,
    /// How many there are.
    pub total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunUsage>,
    /// Of this namespace; for the operator in `default`, of all.
    pub queue: Queue,
}

impl Operation for Usage {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "usage";
    const TITLE: &'static str = "Usage";
    const DESCRIPTION: &'static str = "CPU, memory, disk, I/O, network and processes of sandboxes, or of one run; and how long the line is.";
    const ROUTE: Route = Route { method: Method::Get, path: "/usage" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Reads;
}
