//! What the daemon and the fork server say to each other, over a `SOCK_SEQPACKET` socket: one
//! packet is one message, descriptors travel beside it.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// From the daemon.
#[derive(Debug, Clone, Encode, Decode)]
pub enum ForkRequest {
    /// Make a sandbox. Descriptors: the stream to the agent, then a listening-to-be socket when
    /// `has_listener`, then one `tasks` per cgroup (or the directory of the one cgroup of the unified tree), then the volume's loop device when it is
    /// on one. Answered with [`ForkReply::Made`].
    #[n(0)]
    Make(#[n(0)] Box<MakeRequest>),
    /// Remove a tree below the fork server's state directory. Answered with [`ForkReply::Removed`].
    #[n(1)]
    Remove(#[n(0)] RemoveTree),
    /// Measure a tree below the state directory. Answered with [`ForkReply::Measured`].
    #[n(2)]
    Measure(#[n(0)] MeasureTree),
}

/// To the daemon. `ticket` is the one of the request.
#[derive(Debug, Clone, Encode, Decode)]
pub enum ForkReply {
    /// The fork server is ready (first message it sends). In a user namespace of its own it first
    /// sends [`ForkReply::MapMe`].
    #[n(0)]
    Ready,
    /// The fork server sits in a fresh user namespace and waits until its ids are mapped; the
    /// daemon answers with any packet.
    #[n(1)]
    MapMe,
    /// The process was cloned; a pidfd travels beside it. Its own stream reports whether its set-up worked.
    #[n(2)]
    Made(#[n(0)] Made),
    /// It could not be cloned.
    #[n(3)]
    Refused(#[n(0)] Refused),
    /// A tree was removed, or what is left of it and why.
    #[n(4)]
    Removed(#[n(0)] Removed),
    /// Size of a tree.
    #[n(5)]
    Measured(#[n(0)] Measured),
}

/// See [`ForkReply::Made`].
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Made {
    /// The request's ticket.
    #[n(0)]
    pub ticket: u64,
    /// Its pid as the host sees it.
    #[n(1)]
    pub pid: i32,
}

/// See [`ForkReply::Refused`].
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Refused {
    /// The request's ticket.
    #[n(0)]
    pub ticket: u64,
    /// What was being done.
    #[n(1)]
    pub step: String,
    /// The system's error number.
    #[n(2)]
    pub errno: i32,
}

/// See [`ForkReply::Removed`].
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Removed {
    /// The request's ticket.
    #[n(0)]
    pub ticket: u64,
    /// Error number, 0 when all is gone.
    #[n(1)]
    pub errno: i32,
}

/// See [`ForkReply::Measured`].
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Measured {
    /// The request's ticket.
    #[n(0)]
    pub ticket: u64,
    /// Bytes on disk, as far as they were counted.
    #[n(1)]
    pub bytes: u64,
    /// Whether all of it was counted in the time given.
    #[n(2)]
    pub is_whole: bool,
}

/// See [`ForkRequest::Measure`].
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct MeasureTree {
    /// Names the answer.
    #[n(0)]
    pub ticket: u64,
    /// Below the state directory.
    #[n(1)]
    pub path: String,
    /// How long it may take.
    #[n(2)]
    pub seconds: u64,
}

/// See [`ForkRequest::Remove`].
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct RemoveTree {
    /// Echoed in the reply.
    #[n(0)]
    pub ticket: u64,
    /// Path below the state directory, without `..`.
    #[n(1)]
    pub path: String,
}

/// Which tier to set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum MakeTier {
    /// Own namespaces and root.
    #[n(0)]
    Container,
    /// Landlock, seccomp and rlimits only.
    #[n(1)]
    Process,
}

/// One extent of an id map: `length` ids from `inside` on are `outside` on, as the fork server sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Extent {
    /// First id in the sandbox.
    #[n(0)]
    pub inside: u32,
    /// First id in the fork server's user namespace.
    #[n(1)]
    pub outside: u32,
    /// How many.
    #[n(2)]
    pub length: u32,
}

/// Where the volume of a named sandbox comes from: it holds the writable layer and the workspace.
#[derive(Debug, Clone, Encode, Decode)]
pub enum Volume {
    /// None: everything is in memory, charged to the sandbox.
    #[n(0)]
    Memory,
    /// This directory below the state directory.
    #[n(1)]
    Directory(#[n(0)] String),
    /// An ext4 image on a loop device, whose descriptor is the last one of the request.
    #[n(2)]
    LoopDevice,
}

impl Volume {
    /// Whether an error says that the volume's own limit is reached, and not that the host has no space.
    #[must_use]
    pub fn is_full(&self, error: &std::io::Error) -> bool {
        matches!(self, Self::LoopDevice) && matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
    }
}

/// A sandbox to make.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct MakeRequest {
    /// Echoed in the reply.
    #[n(0)]
    pub ticket: u64,
    /// Which tier.
    #[n(1)]
    pub tier: MakeTier,
    /// Id maps of the sandbox's user namespace; for tier `process` they say which host id the sandbox
    /// user is (none: the daemon's own).
    #[n(2)]
    pub ids: Vec<Extent>,
    /// Where the writable layer and the workspace are.
    #[n(3)]
    pub volume: Volume,
    /// Name of the writable layer in the volume.
    #[n(4)]
    pub layer: String,
    /// Bytes of the writable layer when it is in memory, and of `/dev/shm`.
    #[n(5)]
    pub tmpfs_bytes: u64,
    /// Inodes of the same.
    #[n(6)]
    pub tmpfs_inodes: u64,
    /// Whether a second descriptor is a bound socket to listen on for later daemons.
    #[n(7)]
    pub has_listener: bool,
    /// Limits set as rlimits because no cgroup holds them: processes, address space (0: none).
    #[n(8)]
    pub rlimit_processes: u64,
    /// See `rlimit_processes`.
    #[n(9)]
    pub rlimit_memory: u64,
    /// Which of the guest's directories exist on the host and are shown read-only (`usr`, `opt` …).
    #[n(10)]
    pub system_directories: Vec<String>,
    /// Open descriptors per process.
    #[n(11)]
    pub rlimit_files: u64,
    /// Largest file, set as an rlimit because nothing else limits the disk (0: none).
    #[n(12)]
    pub rlimit_file_size: u64,
    /// The private directories of a sandbox that has no root of its own (tier `process`).
    #[n(13)]
    pub directories: Option<Directories>,
    /// Bytes of memory the agent keeps the sandbox to because no cgroup does (0: it does not).
    #[n(14)]
    pub watch_memory: u64,
    /// CPUs, in thousandths, the agent keeps the sandbox to because no cgroup does (0: it does not).
    #[n(15)]
    pub watch_cpus: u64,
    /// Processes and threads the agent keeps the sandbox to because nothing else counts them (0: it does
    /// not).
    #[n(16)]
    #[cbor(default)]
    pub watch_processes: u64,
    /// Whether the client of the control socket is shown.
    #[n(50)]
    #[cbor(default)]
    pub control: bool,
    /// Whether `/etc` may be the template's, read-only, instead of the sandbox's own.
    #[n(51)]
    #[cbor(default)]
    pub fixed_etc: bool,
}

/// Where the directories of a sandbox without a root of its own are on the host: absolute paths.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Directories {
    /// What `/workspace` means.
    #[n(0)]
    pub workspace: ByteVec,
    /// What `/home/sandbox` means.
    #[n(1)]
    pub home: ByteVec,
    /// What `/tmp` means.
    #[n(2)]
    pub tmp: ByteVec,
    /// Where `.cache` in the home leads; it outlives the home. None in a one-shot.
    #[n(3)]
    pub cache: Option<ByteVec>,
    /// What `/run/isle` means, with the client of the control socket in it. None where there is none.
    #[n(4)]
    pub control: Option<ByteVec>,
}

/// The id outside that `inside` is; `None` when there is none.
#[must_use]
pub fn outside(ids: &[Extent], inside: u32) -> Option<u32> {
    ids.iter()
        .find(|extent| inside >= extent.inside && inside - extent.inside < extent.length)
        .map(|extent| extent.outside + (inside - extent.inside))
}

/// Names inside a volume.
pub mod volume {
    /// Directory of the workspace.
    pub const WORKSPACE: &str = "workspace";
    /// Directory of what the sandbox user's programs keep for later, package caches among it.
    pub const USER_CACHE: &str = "cache";
    /// The same of the system's programs.
    pub const SYSTEM_CACHE: &str = "system-cache";
    /// npm's own, in the user's.
    pub const NODE_CACHE: &str = "npm";
    /// Directory of the writable layers, one per sandbox that used the volume.
    pub const LAYERS: &str = "layers";
}
