//! The records, as callers see them. Ids and states are plain text here: the engine owns their types,
//! the store only has to know which states are still open.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A sandbox. Written before anything of it is made, removed after everything of it is gone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxRow {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub namespace: String,
    /// Its name; `None` for one-shots.
    pub name: Option<String>,
    /// `named` or `one_shot`.
    pub kind: String,
    /// `creating`, `running`, `failed` or `destroying`.
    pub state: String,
    /// What was asked for.
    pub spec: Value,
    /// Fingerprint of the policy it was made under.
    pub fingerprint: String,
    /// What the backend needs to find it again.
    pub anchor: Value,
    /// What is really enforced.
    pub containment: Value,
    /// When it was made.
    pub created_at_ms: i64,
    /// When it was last used.
    pub last_used_ms: i64,
    /// Its deadlines: the engine's affair. `Null` when it has none.
    pub lease: Value,
}

/// What to change in a sandbox's record; `None` leaves it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SandboxChange {
    /// New state.
    pub state: Option<String>,
    /// New anchor.
    pub anchor: Option<Value>,
    /// How it was made, and what it was granted since.
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
    /// Whose it is.
    pub namespace: String,
    /// The sandbox it ran in.
    pub sandbox_id: String,
    /// That sandbox's name; `None` for one-shots.
    pub sandbox_name: Option<String>,
    /// The door the call came through.
    pub door: String,
    /// Who called.
    pub actor: String,
    /// `exec`, `run_code`, `session`, `validate`, `install`, `job` or `run_commands`.
    pub kind: String,
    /// Its name among the jobs of its sandbox.
    pub job: Option<String>,
    /// The command, for people.
    pub command: String,
    /// When it was begun.
    pub started_at_ms: i64,
    /// `queued`, `running`, or a final state.
    pub state: String,
    /// Exit status, when it ended with one.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// How long it took.
    pub duration_ms: Option<u64>,
    /// CPU time of its whole tree.
    pub cpu_us: Option<u64>,
    /// Peak memory.
    pub peak_rss_kib: Option<u64>,
    /// Bytes read from disks.
    pub io_read_bytes: Option<u64>,
    /// Bytes written to disks.
    pub io_write_bytes: Option<u64>,
    /// What went through the gate of its sandbox in its time.
    pub network: Option<RunNetwork>,
    /// The most processes and threads of it that were seen at once.
    pub peak_tasks: Option<u64>,
    /// Bytes written to standard output in all.
    pub stdout_bytes: u64,
    /// Bytes written to standard error in all.
    pub stderr_bytes: u64,
    /// When it ended.
    pub ended_at_ms: Option<i64>,
    /// Why it ended so, when there is something to say.
    pub note: Option<String>,
    /// What the sandbox refused it.
    pub violations: Value,
    /// Which limits it ran into; written at its end.
    pub limits_hit: Value,
    /// What held while it ran: the engine's affair. `Null` when unknown.
    pub containment: Value,
    /// Whether it has the lock of its sandbox, or waits for it.
    pub locked: bool,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// Of several commands: what is known of each. `Null` for others.
    pub commands: Value,
}

/// What went through the gate of a sandbox while a run went on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNetwork {
    /// Bytes from the sandbox.
    pub sent_bytes: u64,
    /// Bytes to the sandbox.
    pub received_bytes: u64,
    /// Connections that were made.
    pub connections: u64,
    /// How often something was denied.
    pub denied: u64,
    /// Whether other runs went on at the same time.
    pub shared: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunEnd {
    /// A final state.
    pub state: String,
    /// Exit status, when it ended with one.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// How long it took.
    pub duration_ms: Option<u64>,
    /// CPU time of its whole tree.
    pub cpu_us: Option<u64>,
    /// Peak memory.
    pub peak_rss_kib: Option<u64>,
    /// Bytes read from disks.
    pub io_read_bytes: Option<u64>,
    /// Bytes written to disks.
    pub io_write_bytes: Option<u64>,
    /// What went through the gate of its sandbox in its time.
    pub network: Option<RunNetwork>,
    /// The most processes and threads of it that were seen at once.
    pub peak_tasks: Option<u64>,
    /// Bytes written to standard output in all.
    pub stdout_bytes: u64,
    /// Bytes written to standard error in all.
    pub stderr_bytes: u64,
    /// When it ended.
    pub ended_at_ms: i64,
    /// Why it ended so, when there is something to say.
    pub note: Option<String>,
    /// What the sandbox refused it.
    pub violations: Value,
    /// Which limits it ran into; written at its end.
    pub limits_hit: Value,
    /// Of several commands: how each ended. `Null` leaves what is recorded.
    pub commands: Value,
    /// What is kept of its output.
    pub output: RunOutput,
}

/// What is kept of a run's output: the beginning and the end of each stream.
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
        [&self.stdout_head, &self.stdout_tail, &self.stderr_head, &self.stderr_tail]
            .iter()
            .all(|part| part.is_empty())
    }
}

/// What the runs on record of one sandbox came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTotals {
    /// How many.
    pub runs: u64,
    /// CPU time of those that ended.
    pub cpu_us: u64,
    /// Highest memory of any of them.
    pub peak_rss_kib: u64,
    /// What they wrote.
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
    /// At most so many.
    pub limit: u32,
    /// Only those begun before the run with this id: the last one of the page before.
    pub before: Option<String>,
}

impl Default for RunFilter {
    fn default() -> Self {
        Self { namespace: None, sandbox: None, state: None, kind: None, limit: 100, before: None }
    }
}
