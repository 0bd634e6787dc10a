//! Shapes shared by several operations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use isle_core::backend::Tier;
use isle_core::values::{RunId, SandboxName};

pub use crate::rich::{CodeError, ContextState, ContextUse, RichKind, RichResult, TableData, TracebackFrame};

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SandboxState {
    /// Being made.
    Creating,
    /// Ready for commands.
    Running,
    /// It died; the next call builds it anew with the same workspace.
    Failed,
    /// Being removed.
    Destroying,
    /// Everything in it stands still.
    Paused,
    /// Its agent does not answer.
    Unresponsive,
}

impl SandboxState {
    /// As text, the same as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::Destroying => "destroying",
            Self::Paused => "paused",
            Self::Unresponsive => "unresponsive",
        }
    }
}

/// Where a run is in its life. Only `queued` and `running` change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RunState {
    /// Waiting to start.
    Queued,
    /// Going on.
    Running,
    /// Ended with status 0.
    Completed,
    /// Ended with another status, or could not start.
    Failed,
    /// Its time was up; the whole tree was ended.
    TimedOut,
    /// The kernel ended it for lack of memory.
    OomKilled,
    /// Ended by a signal, or by `kill`.
    Killed,
    /// The caller cancelled it.
    Cancelled,
    /// The daemon or the sandbox died and how it ended is not known. It was not run again.
    Lost,
}

impl RunState {
    /// Whether it can still change.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }

    /// As text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::OomKilled => "oom_killed",
            Self::Killed => "killed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
}

/// A run as `exec`, `run_code` and `wait` answer it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// Pass it to `wait`, `logs` or `kill`.
    pub run_id: RunId,
    /// The sandbox it ran in.
    pub sandbox: SandboxName,
    /// How strongly it was isolated, in fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// What did not hold of its containment report: keys, such as `memory_limit`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<String>,
    /// Where it is in its life; `running` means it goes on and `wait` picks it up.
    pub state: RunState,
    /// Exit status; null while it runs or when a signal ended it.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Standard output, middle cut out when `stdout_truncated`.
    pub stdout: String,
    /// Standard error, middle cut out when `stderr_truncated`.
    pub stderr: String,
    /// Wall-clock time.
    pub duration_ms: u64,
    /// Whether stdout is cut; `logs` pages the rest.
    pub stdout_truncated: bool,
    /// Whether stderr is cut; `logs` pages the rest.
    pub stderr_truncated: bool,
    /// Bytes the run wrote to stdout in all.
    pub stdout_bytes: u64,
    /// Bytes the run wrote to stderr in all.
    pub stderr_bytes: u64,
    /// What the sandbox refused the run, with the remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<ViolationShape>,
    /// Limits of the sandbox it ran into, when it did not end well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits_hit: Vec<LimitHit>,
    /// Why it ended so, and what to do, when there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The context code ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextUse>,
    /// What code gave back: the value of its last expression, what it displayed, what it drew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<RichResult>,
    /// The exception that ended code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CodeError>,
    /// Of several commands: how each ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRecord>,
}

/// Where one of several commands is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum CommandState {
    /// Those before it go on.
    Waiting,
    /// Going on.
    Running,
    /// Ended with status 0.
    Completed,
    /// Ended with another status, or could not start.
    Failed,
    /// Ended by a signal, by `kill`, or because the time of the run was up.
    Killed,
    /// An earlier one failed, or the run ended before.
    NotRun,
    /// The sandbox died; whether it ran is not known.
    Lost,
}

/// One of several commands of a run. Its part of the output is at these offsets of the run's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CommandRecord {
    /// The command.
    pub command: String,
    /// Where it is in its life.
    pub state: CommandState,
    /// Whether its failure is none of the run's.
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_failure: bool,
    /// Exit status.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Wall-clock time.
    pub duration_ms: u64,
    /// Where its standard output begins; pass it as offset, and the bytes as limit, to `logs`.
    pub stdout_offset: u64,
    /// Bytes of it.
    pub stdout_bytes: u64,
    /// Where its standard error begins.
    pub stderr_offset: u64,
    /// Bytes of it.
    pub stderr_bytes: u64,
    /// Why it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands the field by reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A limit that a run ran into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct LimitHit {
    /// Which.
    pub limit: LimitName,
    /// Where it stands, such as `64M`.
    pub value: String,
    /// How this is known.
    pub evidence: Evidence,
    /// How to raise it, or what to do where it cannot be raised.
    pub raise: String,
    /// Some program of the sandbox ran into it while the run went on; whose it was is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// The limits of a sandbox and of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LimitName {
    /// Memory of all its processes.
    Memory,
    /// Processes and threads.
    Pids,
    /// Bytes of its writable layer and workspace.
    Disk,
    /// Files and directories of the same.
    Inodes,
    /// Bytes of `/dev/shm`.
    SharedMemory,
    /// Open files of one process.
    OpenFiles,
    /// Bytes of one file.
    FileSize,
    /// CPUs.
    Cpus,
    /// CPU time of one process of the run.
    CpuTime,
    /// Time of the run.
    Timeout,
}

/// How it is known that a limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Evidence {
    /// The kernel counted it, or Isle enforced it.
    Counted,
    /// There was no room left when the run ended.
    Full,
    /// The command's own error output says so; nothing counts this limit.
    Said,
}

/// Something the sandbox refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ViolationShape {
    /// What was tried, such as `mount`.
    pub what: String,
    /// How often.
    pub count: u64,
    /// Why it is refused and what to do instead.
    pub remedy: String,
    /// Some program of the sandbox did this while the run went on; whose it was is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum KindName {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Pipe, socket or device.
    Other,
}

/// Facts about a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct FileFacts {
    /// What it is.
    pub kind: KindName,
    /// Bytes.
    pub size: u64,
    /// Permission bits, in octal.
    pub mode: String,
    /// When it was last changed.
    pub modified: String,
    /// Owner inside the sandbox.
    pub uid: u32,
    /// Group inside the sandbox.
    pub gid: u32,
}

impl FileFacts {
    #[must_use]
    pub fn of(stat: &isle_wire::Stat) -> Self {
        let kind = match stat.kind {
            isle_wire::FileKind::File => KindName::File,
            isle_wire::FileKind::Directory => KindName::Directory,
            isle_wire::FileKind::Symlink => KindName::Symlink,
            isle_wire::FileKind::Other => KindName::Other,
        };
        Self {
            kind,
            size: stat.size,
            mode: format!("{:o}", stat.mode & 0o7777),
            modified: crate::times::timestamp(stat.modified.saturating_mul(1000)),
            uid: stat.uid,
            gid: stat.gid,
        }
    }
}
