//! Several commands in one run, and input for a run that outlives its stream.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::exec::{ExecRequest, TerminalSize};
use crate::failure::Failure;
use crate::message::Exit;

/// Runs several commands one after the other.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct StepsRequest {
    /// What all of them have in common; its own `argv`, `env` and `cwd` are not used.
    #[n(0)]
    pub exec: ExecRequest,
    /// The commands, in order.
    #[n(1)]
    pub steps: Vec<Step>,
    /// Continue after one that failed.
    #[n(2)]
    pub continue_on_error: bool,
}

/// One of several commands.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Step {
    /// Program and arguments.
    #[n(0)]
    pub argv: Vec<ByteVec>,
    /// The whole environment, `NAME=value`.
    #[n(1)]
    pub env: Vec<ByteVec>,
    /// Absolute working directory.
    #[n(2)]
    pub cwd: ByteVec,
    /// Make the working directory when it is missing.
    #[n(3)]
    pub make_cwd: bool,
    /// Its failure does not fail the run.
    #[n(4)]
    pub may_fail: bool,
}

/// The result of one of several commands.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct StepEnd {
    /// How it exited; `None` when it could not be started.
    #[n(0)]
    pub exit: Option<Exit>,
    /// Why it could not be started.
    #[n(1)]
    pub failure: Option<Failure>,
    /// Wall-clock time in microseconds.
    #[n(2)]
    pub wall_us: u64,
    /// Where its part of standard output begins, in bytes of the whole run.
    #[n(3)]
    pub stdout_offset: u64,
    /// Bytes of its part.
    #[n(4)]
    pub stdout_bytes: u64,
    /// Where its part of standard error begins.
    #[n(5)]
    pub stderr_offset: u64,
    /// Bytes of its part.
    #[n(6)]
    pub stderr_bytes: u64,
}

/// Input for a run.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct InputRequest {
    /// The host's id of the run.
    #[n(0)]
    pub run: String,
    /// What to write.
    #[n(1)]
    pub bytes: ByteVec,
    /// Close its standard input afterwards.
    #[n(2)]
    pub end: bool,
    /// The terminal was resized.
    #[n(3)]
    pub resize: Option<TerminalSize>,
    /// How long the program may take to read, in milliseconds.
    #[n(4)]
    pub patience_ms: u64,
}
