//! The records, as callers see them. Ids and states are plain text here: the engine owns their types, and the
//! store only knows which states are final.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A sandbox. Stored before anything of it is created, deleted after everything of it was removed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxRow {
    /// Its id.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name; `None` for one-shots.
    pub name: Option<String>,
    /// `named` or `one_shot`.
    pub kind: String,
    /// `creating`, `running`, `failed` or `destroying`.
    pub state: String,
    /// The requested configuration.
    pub spec: Value,
    /// Fingerprint of the policy it was created with.
    pub fingerprint: String,
    /// What the backend needs to find it again.
    pub anchor: Value,
    /// What is enforced.
    pub containment: Value,
    /// When it was created.
    pub created_at_ms: i64,
    /// When it was last used.
    pub last_used_ms: i64,
    /// Its deadlines, in the engine's format. `Null` if there are none.
    pub lease: Value,
}

/// Changes of a sandbox's record; `None` means unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SandboxChange {
    /// New state.
    pub state: Option<String>,
    /// New anchor.
    pub anchor: Option<Value>,
    /// New configuration, with later grants.
    pub spec: Option<Value>,
    /// New containment report.
    pub containment: Option<Value>,
    /// New time of last use.
    pub last_used_ms: Option<i64>,
    /// New deadlines.
    pub lease: Option<Value>,
}

/// A run, without its output.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// Its id.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// The sandbox it ran in.
    pub sandbox_id: String,
    /// That sandbox's name; `None` for one-shots.
    pub sandbox_name: Option<String>,
    /// The door (CLI, MCP, HTTP) of the call.
    pub door: String,
    /// The caller.
    pub actor: String,
    /// `exec`, `run_code`, `session`, `validate`, `install`, `job` or `run_commands`.
    pub kind: String,
    /// Its name among the jobs of its sandbox.
    pub job: Option<String>,
    /// The command, for people.
    pub command: String,
    /// When it started.
    pub started_at_ms: i64,
    /// `queued`, `running`, or a final state.
    pub state: String,
    /// Exit status, if it exited.
    pub exit_code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// How long it took.
    pub duration_ms: Option<u64>,
    /// CPU time of its process tree.
    pub cpu_us: Option<u64>,
    /// Peak memory.
    pub peak_rss_kib: Option<u64>,
    /// Bytes read from disks.
    pub io_read_bytes: Option<u64>,
    /// Bytes written to disks.
    pub io_write_bytes: Option<u64>,
    /// Network traffic of its sandbox while it ran.
    pub network: Option<RunNetwork>,
    /// Peak number of its processes and threads.
    pub peak_tasks: Option<u64>,
    /// Total bytes written to standard output.
    pub stdout_bytes: u64,
    /// Total bytes written to standard error.
    pub stderr_bytes: u64,
    /// When it ended.
    pub ended_at_ms: Option<i64>,
    /// Additional information about its end, if any.
    pub note: Option<String>,
    /// What the sandbox denied.
    pub violations: Value,
    /// The limits it reached; stored when it finishes.
    pub limits_hit: Value,
    /// The containment while it ran, in the engine's format. `Null` if unknown.
    pub containment: Value,
    /// Whether it has the lock of its sandbox, or waits for it.
    pub locked: bool,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// For several commands: the state of each. `Null` otherwise.
    pub commands: Value,
}

/// Network traffic of a sandbox during a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNetwork {
    /// Bytes from the sandbox.
    pub sent_bytes: u64,
    /// Bytes to the sandbox.
    pub received_bytes: u64,
    /// Connections made.
    pub connections: u64,
    /// Number of denials.
    pub denied: u64,
    /// Whether other runs were active at the same time.
    pub shared: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunEnd {
    /// A final state.
    pub state: String,
    /// Exit status, if it exited.
    pub exit_code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// How long it took.
    pub duration_ms: Option<u64>,
    /// CPU time of its process tree.
    pub cpu_us: Option<u64>,
    /// Peak memory.
    pub peak_rss_kib: Option<u64>,
    /// Bytes read from disks.
    pub io_read_bytes: Option<u64>,
    /// Bytes written to disks.
    pub io_write_bytes: Option<u64>,
    /// Network traffic of its sandbox while it ran.
    pub network: Option<RunNetwork>,
    /// Peak number of its processes and threads.
    pub peak_tasks: Option<u64>,
    /// Total bytes written to standard output.
    pub stdout_bytes: u64,
    /// Total bytes written to standard error.
    pub stderr_bytes: u64,
    /// When it ended.
    pub ended_at_ms: i64,
    /// Additional information about its end, if any.
    pub note: Option<String>,
    /// What the sandbox denied.
    pub violations: Value,
    /// The limits it reached; stored when it finishes.
    pub limits_hit: Value,
    /// For several commands: the result of each. `Null` means unchanged.
    pub commands: Value,
    /// Its stored output.
    pub output: RunOutput,
}

/// The stored output of a run: the beginning and the end of each stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOutput {
    /// Beginning of standard output.
    pub stdout_head: Vec<u8>,
    /// End of standard output, without what is in the head.
    pub stdout_tail: Vec<u8>,
    /// Beginning of standard error.
    pub stderr_head: Vec<u8>,
    /// End of standard error, without what is in the head.
    pub stderr_tail: Vec<u8>,
}

impl RunOutput {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Number of stored bytes.
    pub(crate) fn bytes(&self) -> u64 {
        [&self.stdout_head, &self.stdout_tail, &self.stderr_head, &self.stderr_tail]
            .iter()
            .map(|part| part.len() as u64)
            .sum()
    }
}

/// Totals of the recorded runs of one sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTotals {
    /// Number of runs.
    pub runs: u64,
    /// CPU time of the finished ones.
    pub cpu_us: u64,
    /// Highest peak memory of a run.
    pub peak_rss_kib: u64,
    /// Bytes of output.
    pub output_bytes: u64,
}

/// Which runs to list, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFilter {
    /// Only those of this namespace.
    pub namespace: Option<String>,
    /// Only those in sandboxes of this name.
    pub sandbox: Option<String>,
    /// Only those in this state.
    pub state: Option<String>,
    /// Only those of this kind.
    pub kind: Option<String>,
    /// Maximum number of rows.
    pub limit: u32,
    /// Only those before the run with this id: the last one of the previous page.
    pub before: Option<String>,
}

impl Default for RunFilter {
    fn default() -> Self {
        Self { namespace: None, sandbox: None, state: None, kind: None, limit: 100, before: None }
    }
}
