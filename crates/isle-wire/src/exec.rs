//! Running a command: the program and its environment, its limits, and control messages while it runs.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::message::GuestUser;

/// Where the standard input of a command comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum StdinMode {
    /// `/dev/null`.
    #[n(0)]
    Null,
    /// [`crate::Frame::Stdin`] frames until [`crate::Frame::End`].
    #[n(1)]
    Stream,
}

/// What happens to a run whose stream ends first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum OnHangup {
    /// It continues; the agent keeps its output for a later [`crate::Request::Attach`].
    #[n(0)]
    Continue,
    /// Its process tree is killed.
    #[n(1)]
    Kill,
}

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TerminalSize {
    /// Rows.
    #[n(0)]
    pub rows: u16,
    /// Columns.
    #[n(1)]
    pub columns: u16,
}

/// Limits of one run, enforced by the kernel as rlimits. `None` keeps the sandbox's limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RunLimits {
    /// Seconds of CPU time per process.
    #[n(0)]
    pub cpu_seconds: Option<u64>,
    /// Largest file in bytes.
    #[n(1)]
    pub file_size: Option<u64>,
    /// Open descriptors per process.
    #[n(2)]
    pub open_files: Option<u64>,
    /// Processes of its guest user in the whole sandbox.
    #[n(3)]
    pub processes: Option<u64>,
    /// Address space per process (only set where no memory cgroup exists).
    #[n(4)]
    pub address_space: Option<u64>,
    /// Private writable memory per process, in bytes.
    #[n(5)]
    pub memory: Option<u64>,
}

/// The limit that a run exceeded, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Exceeded {
    /// Seconds of CPU time of one of its processes.
    #[n(0)]
    CpuSeconds(#[n(0)] u64),
    /// Bytes of a file.
    #[n(1)]
    FileSize(#[n(0)] u64),
}

/// Starts a command.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ExecRequest {
    /// The host's id of this run.
    #[n(0)]
    pub run: String,
    /// Program and arguments, byte-exact. A program without a slash is looked up on the `PATH` of `env`.
    #[n(1)]
    pub argv: Vec<ByteVec>,
    /// The whole environment, `NAME=value`.
    #[n(2)]
    pub env: Vec<ByteVec>,
    /// Absolute working directory.
    #[n(3)]
    pub cwd: ByteVec,
    /// Make the working directory when it is missing.
    #[n(4)]
    pub make_cwd: bool,
    /// Who it runs as.
    #[n(5)]
    pub user: GuestUser,
    /// Standard input.
    #[n(6)]
    pub stdin: StdinMode,
    /// A terminal of this size instead of three pipes.
    #[n(7)]
    pub terminal: Option<TerminalSize>,
    /// What to do when the stream is reset. A lost *connection* always means continue unless this says kill.
    #[n(8)]
    pub on_hangup: OnHangup,
    /// How many bytes of each output the agent retains for a later attach (first half and last half).
    #[n(9)]
    pub retain: u64,
    /// rlimits.
    #[n(10)]
    pub limits: RunLimits,
    /// Kill the process tree after this many milliseconds of wall-clock time. Enforced by the agent as well,
    /// so that a run keeps its deadline while no daemon is running.
    #[n(11)]
    pub timeout_ms: Option<u64>,
    /// Runs whose result the host has recorded: as [`crate::Request::Forget`], without a separate call.
    #[n(12)]
    pub forget: Vec<String>,
    /// Standard input stays open when the stream ends; more comes with [`crate::Request::Input`].
    #[n(13)]
    #[cbor(default)]
    pub keep_input: bool,
}

/// Sent by the host on an exec stream after the request, between stdin frames.
#[derive(Debug, Clone, Encode, Decode)]
pub enum ExecControl {
    /// The terminal was resized.
    #[n(0)]
    Resize(#[n(0)] TerminalSize),
    /// Signal the process group in the foreground of this run.
    #[n(1)]
    Signal(#[n(0)] i32),
}
