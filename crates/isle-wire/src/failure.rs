//! What can go wrong inside a sandbox, told by its agent.

use minicbor::{Decode, Encode};

/// What kind of thing went wrong inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum FailureKind {
    /// No such file, directory or program.
    #[n(0)]
    NotFound,
    /// The sandbox user may not.
    #[n(1)]
    Denied,
    /// A directory where a file is due.
    #[n(2)]
    IsDirectory,
    /// A file where a directory is due.
    #[n(3)]
    NotDirectory,
    /// The path leaves the place it must stay in, or goes through a magic link.
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
    /// The run has no standard input, or it has ended.
    #[n(15)]
    InputClosed,
    /// There is no guest root: commands run as one user only.
    #[n(16)]
    NoGuestRoot,
    /// Something stands there already.
    #[n(32)]
    Exists,
    /// Larger than allowed.
    #[n(33)]
    TooLarge,
    /// The two places are on different file systems of the sandbox.
    #[n(34)]
    OtherDevice,
    /// The kernel gives no more watches.
    #[n(35)]
    TooManyWatches,
    /// The sandbox is paused: nothing is started.
    #[n(40)]
    Paused,
    /// The disk under the sandbox gives errors.
    #[n(140)]
    DiskBroken,
}

/// Why something failed inside the sandbox.
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
