//! Operations on files beyond reading and writing one: editing, searching and watching, and packing,
//! unpacking and comparing whole trees.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::file::{FileKind, PathRequest};

/// Replaces text in one file: all edits, in their order, or none.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct EditRequest {
    /// Which file.
    #[n(0)]
    pub at: PathRequest,
    /// What is replaced.
    #[n(1)]
    pub edits: Vec<Edit>,
    /// A file that is larger, before or after, is rejected.
    #[n(2)]
    pub largest: u64,
}

/// One replacement.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Edit {
    /// The text to replace; never empty.
    #[n(0)]
    pub old: ByteVec,
    /// The replacement.
    #[n(1)]
    pub new: ByteVec,
    /// Replace all occurrences. Otherwise there must be exactly one.
    #[n(2)]
    pub all: bool,
}

/// What an edit did.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Edited {
    /// Replacements, per edit.
    #[n(0)]
    pub replaced: Vec<u64>,
    /// Size of the file now.
    #[n(1)]
    pub size: u64,
}

/// An edit whose text does not occur, or occurs more than once. Nothing was changed.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct EditRefused {
    /// Which of the edits, counted from 0.
    #[n(0)]
    pub index: u64,
    /// How often its text occurs.
    #[n(1)]
    pub found: u64,
    /// The lines it begins on, the first few.
    #[n(2)]
    pub lines: Vec<u64>,
}

/// Moves a file or directory.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct MoveRequest {
    /// From where.
    #[n(0)]
    pub from: PathRequest,
    /// To where; missing parent directories are created.
    #[n(1)]
    pub to: PathRequest,
    /// Replace an existing file.
    #[n(2)]
    pub replace: bool,
}

/// Searches the text of files below a directory, or of one file.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct SearchRequest {
    /// Where.
    #[n(0)]
    pub at: PathRequest,
    /// What: a regular expression, checked by the host.
    #[n(1)]
    pub pattern: String,
    /// Only files whose path, or name, matches this glob.
    #[n(2)]
    pub glob: Option<String>,
    /// Lines shown before and after each match.
    #[n(3)]
    pub context: u32,
    /// Matches at most.
    #[n(4)]
    pub limit: u32,
    /// Bytes of text in the answer at most.
    #[n(5)]
    pub budget: u64,
    /// Stop after so many milliseconds.
    #[n(6)]
    pub time_ms: u64,
}

/// One matching line.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Match {
    /// Path relative to where the search began; empty when that was the file itself.
    #[n(0)]
    pub path: ByteVec,
    /// Number of the line, from 1.
    #[n(1)]
    pub line: u64,
    /// First byte of the match in it, from 1.
    #[n(2)]
    pub column: u64,
    /// The line, cut when it is long.
    #[n(3)]
    pub text: ByteVec,
    /// Lines before.
    #[n(4)]
    pub before: Vec<ByteVec>,
    /// Lines after.
    #[n(5)]
    pub after: Vec<ByteVec>,
}

/// Why a search ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Cut {
    /// There are more matches than asked for.
    #[n(0)]
    Matches,
    /// The answer would be too long.
    #[n(1)]
    Bytes,
    /// It timed out.
    #[n(2)]
    Time,
}

/// What a search found.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct Matches {
    /// In the order of paths and lines.
    #[n(0)]
    pub matches: Vec<Match>,
    /// Files that were searched.
    #[n(1)]
    pub files: u64,
    /// Files that were not, because they hold no text or may not be read.
    #[n(2)]
    pub skipped: u64,
    /// Why it ended early, if it did.
    #[n(3)]
    pub cut: Option<Cut>,
}

/// Reports changes of files below a directory. Answered with a [`crate::Reply`], then with [`WatchBatch`]
/// messages until the host closes the stream or the directory is removed.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct WatchRequest {
    /// The directory, or one file.
    #[n(0)]
    pub at: PathRequest,
    /// Also what is below its directories.
    #[n(1)]
    pub recursive: bool,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum WatchKind {
    /// It was created.
    #[n(0)]
    Created,
    /// Its contents, mode or owner changed.
    #[n(1)]
    Modified,
    /// It was removed.
    #[n(2)]
    Removed,
    /// It was renamed.
    #[n(3)]
    Moved,
}

/// One change.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct WatchEvent {
    /// What.
    #[n(0)]
    pub kind: WatchKind,
    /// Path relative to the watched directory.
    #[n(1)]
    pub path: ByteVec,
    /// The name it had before.
    #[n(2)]
    pub from: Option<ByteVec>,
    /// Whether it is a directory.
    #[n(3)]
    pub directory: bool,
}

/// The changes since the last message.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct WatchBatch {
    /// In their order.
    #[n(0)]
    pub events: Vec<WatchEvent>,
    /// The kernel dropped events; list the files instead.
    #[n(1)]
    pub overflow: bool,
}

/// Sends a tree as a tar archive: a [`crate::Reply`] with the metadata of its top, data frames, then
/// a [`crate::Reply`] with what was packed, and an end frame.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct PackRequest {
    /// The directory.
    #[n(0)]
    pub at: PathRequest,
    /// Only the paths that follow, each ended by a NUL byte, as data frames up to an end frame.
    #[n(1)]
    pub listed: bool,
    /// A file with holes that claims more bytes is left out.
    #[n(2)]
    pub hollow: u64,
}

/// Receives a tar archive as data frames up to an end frame, then answers with one [`crate::Reply`].
/// Nothing is visible before all of it has arrived and was checked.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct UnpackRequest {
    /// The directory it goes to; made when missing.
    #[n(0)]
    pub at: PathRequest,
    /// Entries at most.
    #[n(1)]
    pub entries: u64,
    /// Bytes of all files at most.
    #[n(2)]
    pub bytes: u64,
}

/// How many of those left out are named.
const NAMED: usize = 100;

/// What was packed or unpacked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Carried {
    /// Files.
    #[n(0)]
    pub files: u64,
    /// Directories.
    #[n(1)]
    pub directories: u64,
    /// Symbolic links.
    #[n(2)]
    pub links: u64,
    /// Bytes of the files.
    #[n(3)]
    pub bytes: u64,
    /// What was left out, the first of them.
    #[n(4)]
    pub skipped: Vec<LeftOut>,
    /// How many were left out in all.
    #[n(5)]
    pub skipped_count: u64,
}

impl Carried {
    /// Notes something that was left out.
    pub fn skip(&mut self, path: &[u8], why: impl Into<String>) {
        self.skipped_count += 1;
        if self.skipped.len() < NAMED {
            self.skipped.push(LeftOut { path: path.to_vec().into(), why: why.into() });
        }
    }
}

/// Something that was not packed.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LeftOut {
    /// Path relative to the top.
    #[n(0)]
    pub path: ByteVec,
    /// Why.
    #[n(1)]
    pub why: String,
}

/// An archive that was rejected. Nothing was changed.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ArchiveRefused {
    /// Why, as a sentence.
    #[n(0)]
    pub why: String,
    /// Whether it is merely too large.
    #[n(1)]
    pub too_large: bool,
}

/// Lists a tree with hashes: a [`crate::Reply`], then [`ManifestPart`] messages and an end frame.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ManifestRequest {
    /// The directory.
    #[n(0)]
    pub at: PathRequest,
    /// Entries at most.
    #[n(1)]
    pub most: u64,
    /// Bytes at most that are read for hashes; as many as there are when `None`.
    #[n(2)]
    pub bytes: Option<u64>,
}

/// Some entries of a manifest.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ManifestPart {
    /// The entries, each directory before what it holds.
    #[n(0)]
    pub entries: Vec<ManifestEntry>,
    /// There are more than were asked for.
    #[n(1)]
    pub truncated: bool,
}

/// One entry of a tree.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ManifestEntry {
    /// Path relative to the top.
    #[n(0)]
    pub path: ByteVec,
    /// What it is.
    #[n(1)]
    pub kind: FileKind,
    /// Permission bits.
    #[n(2)]
    pub mode: u32,
    /// Bytes.
    #[n(3)]
    pub size: u64,
    /// SHA-256 of a file's contents; missing when it may not be read.
    #[n(4)]
    pub hash: Option<ByteVec>,
}

/// Removes many files and empty directories, in the order given; one that does not exist is no error.
/// The paths follow, each ended by a NUL byte, as data frames up to an end frame.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct PruneRequest {
    /// The directory they are below.
    #[n(0)]
    pub at: PathRequest,
}
