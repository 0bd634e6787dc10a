//! What can fail inside a sandbox, as its agent reports it.

use minicbor::{Decode, Encode};

/// Kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum FailureKind {
    /// No such file, directory or program.
    #[n(0)]
    NotFound,
    /// Not permitted for the sandbox user.
    #[n(1)]
    Denied,
    /// Is a directory.
    #[n(2)]
    IsDirectory,
    /// Not a directory.
    #[n(3)]
    NotDirectory,
    /// The path leads out of the directory it must stay below, or through a magic link.
    #[n(4)]
    Escapes,
    /// No space, or a quota was reached.
    #[n(5)]
    NoSpace,
    /// Not a regular file (pipe, socket, device).
    #[n(6)]
    NotRegular,
    /// No such run.
    #[n(7)]
    NoSuchRun,
    /// The limit on processes was reached.
    #[n(8)]
    NoProcesses,
    /// Memory ran out.
    #[n(9)]
    NoMemory,
    /// The file exists but is not an executable format.
    #[n(10)]
    NotExecutable,
    /// The directory is not empty.
    #[n(11)]
    NotEmpty,
    /// Anything else; see the message.
    #[n(12)]
    Other,
    /// The context has another language or another user.
    #[n(13)]
    OtherContext,
    /// There are as many contexts as there may be.
    #[n(14)]
    TooManyContexts,
    /// The run has no standard input, or it is closed.
    #[n(15)]
    InputClosed,
    /// There is no guest root: all commands run as one user.
    #[n(16)]
    NoGuestRoot,
    /// The file exists.
    #[n(32)]
    Exists,
    /// Larger than allowed.
    #[n(33)]
    TooLarge,
    /// Source and target are on different file systems of the sandbox.
    #[n(34)]
    OtherDevice,
    /// The kernel's limit on inotify watches was reached.
    #[n(35)]
    TooManyWatches,
    /// The sandbox is paused; no command is started.
    #[n(40)]
    Paused,
    /// The disk under the sandbox reports I/O errors.
    #[n(140)]
    DiskBroken,
    /// Needs a connection to the host that passes descriptors, and this one does not.
    #[n(141)]
    NoDescriptorPassing,
    /// The agent was started in a mode that does not offer this.
    #[n(142)]
    NotInThisMode,
}

/// A failure inside the sandbox.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Failure {
    /// What kind.
    #[n(0)]
    pub kind: FailureKind,
    /// The system's error number, 0 when there is none.
    #[n(1)]
    pub errno: i32,
    /// What was being done, such as `open /workspace/x`.
    #[n(2)]
    pub doing: String,
}
