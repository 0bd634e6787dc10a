//! Operations on files: paths, metadata, reading, writing, listing, removing.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::message::GuestUser;

/// A path as the guest sees it. With `beneath`, the path is resolved below that directory and may
/// not leave it, neither by `..` nor through a link; without, it is absolute and links are
/// followed inside the sandbox. Magic links (`/proc/*/root` and their like) are never followed.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct PathRequest {
    /// The path.
    #[n(0)]
    pub path: ByteVec,
    /// The directory it must stay below.
    #[n(1)]
    pub beneath: Option<ByteVec>,
    /// Whose rights count.
    #[n(2)]
    pub user: GuestUser,
}

/// Reads a file.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ReadRequest {
    /// Which.
    #[n(0)]
    pub at: PathRequest,
    /// First byte.
    #[n(1)]
    pub offset: u64,
    /// How many at most; `None` is all.
    #[n(2)]
    pub limit: Option<u64>,
}

/// Opens a write stream: then, per file, a [`WriteHeader`] message and data frames; an end frame closes the
/// list.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct WriteRequest {
    /// Whose rights count and who will own the files.
    #[n(0)]
    pub user: GuestUser,
}

/// Starts one file of a write stream. Nothing is visible under its name until every file has arrived.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct WriteHeader {
    /// Where; `at.user` is ignored in favour of the stream's.
    #[n(0)]
    pub at: PathRequest,
    /// Permission bits.
    #[n(1)]
    pub mode: u32,
    /// Append to the existing file instead of replacing it.
    #[n(2)]
    pub append: bool,
    /// An existing file keeps its permission bits.
    #[n(3)]
    #[cbor(default)]
    pub keep_mode: bool,
}

/// Lists a directory.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ListRequest {
    /// Which.
    #[n(0)]
    pub at: PathRequest,
    /// How many levels down; 1 is the directory itself.
    #[n(1)]
    pub depth: u32,
    /// How many entries at most.
    #[n(2)]
    pub limit: u32,
    /// Only entries whose path, or name, matches this glob.
    #[n(3)]
    pub glob: Option<String>,
}

/// Removes a file or tree.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct RemoveRequest {
    /// Which.
    #[n(0)]
    pub at: PathRequest,
    /// Directories too, with all they contain.
    #[n(1)]
    pub recursive: bool,
    /// Only what a directory contains, and not the directory.
    #[n(2)]
    #[cbor(default)]
    pub contents: bool,
}

/// Looks a program up.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct WhichRequest {
    /// Candidates, best first.
    #[n(0)]
    pub names: Vec<String>,
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum FileKind {
    /// Regular file.
    #[n(0)]
    File,
    /// Directory.
    #[n(1)]
    Directory,
    /// Symbolic link.
    #[n(2)]
    Symlink,
    /// Pipe, socket or device.
    #[n(3)]
    Other,
}

/// Metadata of a file.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Stat {
    /// What it is.
    #[n(0)]
    pub kind: FileKind,
    /// Size in bytes.
    #[n(1)]
    pub size: u64,
    /// Permission bits.
    #[n(2)]
    pub mode: u32,
    /// Seconds since 1970.
    #[n(3)]
    pub modified: i64,
    /// Owner inside the sandbox.
    #[n(4)]
    pub uid: u32,
    /// Group inside the sandbox.
    #[n(5)]
    pub gid: u32,
    /// Bytes allocated on disk: fewer than its size when it has holes. `None` when unknown.
    #[n(6)]
    pub allocated: Option<u64>,
}

/// One entry of a listing.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// Path relative to the listed directory.
    #[n(0)]
    pub path: ByteVec,
    /// Metadata.
    #[n(1)]
    pub stat: Stat,
    /// Where a symbolic link points.
    #[n(2)]
    pub target: Option<ByteVec>,
}

/// A directory's entries, sorted by path.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Listing {
    /// The entries.
    #[n(0)]
    pub entries: Vec<Entry>,
    /// Whether there were more than asked for.
    #[n(1)]
    pub truncated: bool,
}
