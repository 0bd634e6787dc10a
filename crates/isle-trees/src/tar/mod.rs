//! Tar archives: a strict reader and a simple writer. The reader is fed with bytes and returns entries; it
//! rejects everything that could leave the directory of the archive.

mod header;
mod reader;
mod writer;

pub use reader::{Entry, EntryKind, Reader, Sink, TarError};
pub use writer::{end, padding, write_comments, write_header};

/// The block size of archives.
pub const BLOCK: usize = 512;
