//! The messages between host and agent. Fields are numbered, so that unknown ones are skipped. Paths,
//! arguments and environment are bytes: their encoding is up to the guest.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::code::{CodeRequest, ContextFate, ContextRequest};
use crate::exec::{Exceeded, ExecRequest};
use crate::failure::Failure;
use crate::file::{
    ListRequest, Listing, PathRequest, ReadRequest, RemoveRequest, Stat, WhichRequest, WriteRequest,
};
use crate::gate::{CarryRequest, Connections, DialRequest};
use crate::steps::{InputRequest, StepEnd, StepsRequest};
use crate::tree::{
    ArchiveRefused, Carried, EditRefused, EditRequest, Edited, ManifestRequest, Matches, MoveRequest,
    PackRequest, PruneRequest, SearchRequest, UnpackRequest, WatchRequest,
};

/// First message on every stream, from host to agent: what this stream is for.
#[derive(Debug, Clone, Encode, Decode)]
pub enum Request {
    /// Answered with [`Welcome`]. Also used to check that the agent responds.
    #[n(0)]
    Hello(#[n(0)] Hello),
    /// Start a command; the stream then carries its input and output. Answered with [`ExecEvent`]s.
    #[n(1)]
    Exec(#[n(0)] Box<ExecRequest>),
    /// Follow a run that is known to the agent, from the start of what it retained.
    #[n(2)]
    Attach(#[n(0)] AttachRequest),
    /// Send a signal to a run. Answered with [`Reply`]. SIGKILL for the whole process tree of a run the
    /// agent does not know yet is remembered: streams may overtake each other.
    #[n(3)]
    Signal(#[n(0)] SignalRequest),
    /// List the runs the agent knows. Answered with [`RunList`].
    #[n(4)]
    Runs,
    /// The host has recorded how this run exited; its output may be dropped. Answered with [`Reply`].
    #[n(5)]
    Forget(#[n(0)] RunRef),
    /// Read a file: answered with a [`Reply`] holding its [`Stat`], then data frames and an end frame.
    #[n(6)]
    ReadFile(#[n(0)] ReadRequest),
    /// Write files, all or none: see [`WriteHeader`]. Answered with one [`Reply`] after the end frame.
    #[n(7)]
    WriteFiles(#[n(0)] WriteRequest),
    /// Answered with a [`Reply`] holding a [`Stat`].
    #[n(8)]
    Stat(#[n(0)] PathRequest),
    /// Answered with a [`Reply`] holding a [`Listing`].
    #[n(9)]
    List(#[n(0)] ListRequest),
    /// Remove a file, or a tree when `recursive`. Answered with [`Reply`].
    #[n(10)]
    Remove(#[n(0)] RemoveRequest),
    /// Find a program on the standard path. Answered with a [`Reply`] holding its path.
    #[n(11)]
    Which(#[n(0)] WhichRequest),
    /// Stop the sandbox: every process is killed and the agent exits. The only answer is the end of the
    /// connection.
    #[n(12)]
    Shutdown,
    /// Run code in a prestarted interpreter or in a context. Answered as [`Request::Exec`] is; the report of
    /// the interpreter comes as data frames before the last message.
    #[n(13)]
    Code(#[n(0)] Box<CodeRequest>),
    /// List contexts. Answered with [`ContextList`].
    #[n(14)]
    Contexts,
    /// Interrupt, restart or remove a context. Answered with [`Reply`].
    #[n(15)]
    Context(#[n(0)] ContextRequest),
    /// Run several commands one after the other, as one run. Answered as [`Request::Exec`] is, with an
    /// [`ExecEvent::Step`] after each command.
    #[n(16)]
    Steps(#[n(0)] Box<StepsRequest>),
    /// Input for a run that keeps its standard input open, or a new size of its terminal. Answered with a
    /// [`Reply`] that says how many bytes were written.
    #[n(17)]
    Input(#[n(0)] InputRequest),
    /// Replace text in a file. Answered with [`Reply`].
    #[n(32)]
    Edit(#[n(0)] EditRequest),
    /// Move a file or directory. Answered with [`Reply`].
    #[n(33)]
    Move(#[n(0)] Box<MoveRequest>),
    /// Search files. Answered with [`Reply`].
    #[n(34)]
    Search(#[n(0)] SearchRequest),
    /// Report changes of files: see [`WatchRequest`].
    #[n(35)]
    Watch(#[n(0)] WatchRequest),
    /// Send a tree: see [`PackRequest`].
    #[n(36)]
    Pack(#[n(0)] PackRequest),
    /// Receive a tree: see [`UnpackRequest`].
    #[n(37)]
    Unpack(#[n(0)] UnpackRequest),
    /// List a tree with hashes: see [`ManifestRequest`].
    #[n(38)]
    Manifest(#[n(0)] ManifestRequest),
    /// Remove the named files: see [`PruneRequest`]. Answered with [`Reply`].
    #[n(39)]
    Prune(#[n(0)] PruneRequest),
    /// Stop every process of the sandbox and start none (`true`), or resume those that were stopped by it
    /// (`false`). Answered with a [`Reply`] that says how many.
    #[n(40)]
    Pause(#[n(0)] bool),
    /// Create the control socket and relay its lines on this stream. Answered with [`Reply`], then
    /// [`crate::ControlEvent`]s and [`crate::ControlAnswer`]s until the stream ends. A later request
    /// replaces an earlier one.
    #[n(50)]
    Control,
    /// Serve the network until this stream ends: see [`crate::GateEvent`]. A later request replaces an
    /// earlier one.
    #[n(60)]
    Gate(#[n(0)] Connections),
    /// Carry a connection on this stream: see [`CarryRequest`].
    #[n(61)]
    Carry(#[n(0)] CarryRequest),
    /// Connect to a port of the sandbox: see [`DialRequest`].
    #[n(62)]
    Dial(#[n(0)] DialRequest),
    /// Report the resource usage of all processes of the sandbox, running and exited. Answered with a
    /// [`Reply`].
    #[n(115)]
    Usage,
}

/// Asks an agent who it is.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    /// Protocol generation of the host.
    #[n(0)]
    pub generation: u32,
}

/// Who an agent is: the content of a [`crate::Preamble`], and the answer to [`Hello`].
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Welcome {
    /// Protocol generation of the agent.
    #[n(0)]
    pub generation: u32,
    /// Version of the agent, for display.
    #[n(1)]
    pub version: String,
    /// What the set-up found it could not enforce, by key (see `Guarantee` in the engine).
    #[n(2)]
    pub missing: Vec<Missing>,
    /// Whether sockets can be sent to the host on this connection. Without it connections of programs have to be
    /// [`Connections::Carried`].
    #[n(3)]
    pub passes_descriptors: bool,
}

/// A guarantee that could not be set up, as the agent saw it.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Missing {
    /// Stable key, such as `landlock` or `seccomp`.
    #[n(0)]
    pub key: String,
    /// What happened.
    #[n(1)]
    pub reason: String,
}

/// Who a command runs as, or whose rights a file operation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum GuestUser {
    /// uid 1000 of the sandbox, without any capability.
    #[n(0)]
    Sandbox,
    /// uid 0 of the sandbox, with five capabilities that count only inside it.
    #[n(1)]
    Root,
}

/// Sent by the agent on an exec stream, between output frames.
#[derive(Debug, Clone, Encode, Decode)]
pub enum ExecEvent {
    /// The program was executed. Optional, and not sent by `isle-agent`: every message costs time, and the
    /// host treats a sent request as a started run.
    #[n(0)]
    Started,
    /// The program could not be executed. Last message.
    #[n(1)]
    Failed(#[n(0)] Failure),
    /// The run has exited, no process of it is left and all output was sent. Last message.
    #[n(2)]
    Ended(#[n(0)] Box<Ended>),
    /// On an attached stream: these many bytes of the named output were dropped between what was
    /// retained at its start and what follows.
    #[n(3)]
    Skipped(#[n(0)] Skipped),
    /// One of several commands has exited; all its output was sent.
    #[n(4)]
    Step(#[n(0)] StepEnd),
    /// A program of the sandbox looks up a name while no gate is served: see [`Request::Gate`].
    #[n(80)]
    NameAsked,
}

/// Output that was not retained.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Skipped {
    /// Bytes of standard output missing here.
    #[n(0)]
    pub stdout: u64,
    /// Bytes of standard error missing here.
    #[n(1)]
    pub stderr: u64,
}

/// How the first process of a run exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Exit {
    /// With this exit status.
    #[n(0)]
    Code(#[n(0)] i32),
    /// Killed by this signal.
    #[n(1)]
    Signal(#[n(0)] i32),
}

/// The result of a run.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Ended {
    /// How it exited.
    #[n(0)]
    pub exit: Exit,
    /// Whether the agent killed it because it timed out.
    #[n(1)]
    pub timed_out: bool,
    /// Wall-clock time in microseconds.
    #[n(2)]
    pub wall_us: u64,
    /// CPU time in microseconds, user and system, of the process and the children it waited for.
    #[n(3)]
    pub cpu_us: u64,
    /// Peak resident size in KiB of the largest of them.
    #[n(4)]
    pub peak_rss_kib: u64,
    /// Total bytes of standard output, kept or not.
    #[n(5)]
    pub stdout_bytes: u64,
    /// Total bytes of standard error, kept or not.
    #[n(6)]
    pub stderr_bytes: u64,
    /// Processes that were still running when the first one exited, and were killed.
    #[n(7)]
    pub leftovers: u32,
    /// System calls that seccomp denied, with how often.
    #[n(8)]
    pub violations: Vec<Violation>,
    /// What was full when it exited. Checked only when it failed.
    #[n(9)]
    #[cbor(default)]
    pub full: Vec<Full>,
    /// The limit of [`crate::RunLimits`] that it exceeded, if one was.
    #[n(10)]
    pub exceeded: Option<Exceeded>,
    /// What happened to the context it ran in.
    #[n(11)]
    pub context: Option<ContextFate>,
    /// How many of its processes the agent killed at the sandbox's memory limit, which it watches where no
    /// cgroup enforces it.
    #[n(12)]
    #[cbor(default)]
    pub killed_for_memory: u32,
    /// How often a program of the sandbox tried to reach an address directly, as far as no earlier run
    /// reported it. Checked only when the run failed.
    #[n(20)]
    #[cbor(default)]
    pub unrouted: u64,
    /// The same at the sandbox's limit on the number of processes.
    #[n(140)]
    #[cbor(default)]
    pub killed_for_processes: u32,
    /// The largest number of its processes and threads at one time, sampled by the agent.
    #[n(141)]
    pub most_tasks: Option<u32>,
    /// Disk I/O of its first process, of the children that process waited for, and of those that were
    /// killed with it. `None` when it could not be read.
    #[n(13)]
    pub transferred: Option<Transferred>,
}

/// Disk I/O as the kernel counts it: reads that were served by a disk, and writes to files on a disk at
/// the time of the `write`, though they may reach the disk later or never. Files in memory do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Transferred {
    /// Bytes read.
    #[n(0)]
    pub read_bytes: u64,
    /// Bytes written.
    #[n(1)]
    pub written_bytes: u64,
}

/// A resource of a sandbox that is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Full {
    /// Which resource.
    #[n(0)]
    pub resource: FullResource,
    /// How much of it is used: bytes or files.
    #[n(1)]
    pub used: u64,
    /// How much there is.
    #[n(2)]
    pub limit: u64,
}

/// What can be full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum FullResource {
    /// Bytes of the writable layer and the workspace.
    #[n(0)]
    Disk,
    /// Files and directories of the same.
    #[n(1)]
    Inodes,
    /// Bytes of `/dev/shm`.
    #[n(2)]
    SharedMemory,
}

/// A denied system call.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Violation {
    /// Name of the call, such as `mount`.
    #[n(0)]
    pub call: String,
    /// How often.
    #[n(1)]
    pub count: u64,
}

/// Refers to a run.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct RunRef {
    /// The host's id of the run.
    #[n(0)]
    pub run: String,
}

/// Attaches to a run.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct AttachRequest {
    /// The host's id of the run.
    #[n(0)]
    pub run: String,
}

/// Signals a run.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct SignalRequest {
    /// The host's id of the run.
    #[n(0)]
    pub run: String,
    /// The signal's number.
    #[n(1)]
    pub signal: i32,
    /// Every process of the run, double forks included, instead of its process group.
    #[n(2)]
    pub whole_tree: bool,
}

/// The runs an agent knows.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct RunList {
    /// One entry per run that is alive or not yet forgotten.
    #[n(0)]
    pub runs: Vec<RunEntry>,
}

/// One run an agent knows.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct RunEntry {
    /// The host's id of the run.
    #[n(0)]
    pub run: String,
    /// Whether it has exited.
    #[n(1)]
    pub ended: bool,
}

/// The agent's answer to a simple request.
#[derive(Debug, Clone, Encode, Decode)]
pub enum Reply {
    /// Done.
    #[n(0)]
    Done,
    /// Not done, and nothing changed.
    #[n(1)]
    Failed(#[n(0)] Failure),
    /// Facts about a file.
    #[n(2)]
    Stat(#[n(0)] Stat),
    /// Entries of a directory.
    #[n(3)]
    Listing(#[n(0)] Listing),
    /// A path, or nothing was found.
    #[n(4)]
    Found(#[n(0)] Option<ByteVec>),
    /// Bytes written, per file in the order sent.
    #[n(5)]
    Written(#[n(0)] Vec<u64>),
    /// So many bytes of input were written.
    #[n(6)]
    Taken(#[n(0)] u64),
    /// A file was edited.
    #[n(32)]
    Edited(#[n(0)] Edited),
    /// It was not: a text does not occur, or more than once.
    #[n(33)]
    EditRefused(#[n(0)] EditRefused),
    /// What a search found.
    #[n(34)]
    Matches(#[n(0)] Matches),
    /// What was packed or unpacked.
    #[n(35)]
    Carried(#[n(0)] Carried),
    /// An archive was rejected.
    #[n(36)]
    ArchiveRefused(#[n(0)] ArchiveRefused),
    /// So many were removed.
    #[n(37)]
    Pruned(#[n(0)] u64),
    /// So many processes were stopped or resumed.
    #[n(40)]
    Stood(#[n(0)] u64),
    /// Connected; the socket with this cookie was sent along: see [`crate::DescriptorReceiver`].
    #[n(110)]
    Connected(#[n(0)] u64),
    /// Resource usage of the sandbox.
    #[n(115)]
    Used(#[n(0)] Used),
}

/// Resource usage of the processes of a sandbox, the agent included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Used {
    /// CPU time so far, of running processes and of those that were waited for.
    #[n(0)]
    pub cpu_ms: u64,
    /// Memory now: anonymous, shared, and files in memory.
    #[n(1)]
    pub memory_bytes: u64,
    /// Processes and threads now.
    #[n(2)]
    pub pids: u32,
    /// Bytes read from disks by exited processes, and by running ones whose counters can be read.
    #[n(3)]
    pub io_read_bytes: u64,
    /// Bytes written to disks, counted the same way.
    #[n(4)]
    pub io_write_bytes: u64,
}
