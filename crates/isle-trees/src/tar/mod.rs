//! Tar archives, read with suspicion and written plainly. The reader is fed with bytes as they come
//! and hands out entries; it takes nothing from an archive that could lead out of the directory it is
//! unpacked in.

mod header;
mod reader;
mod writer;

pub use reader::{Entry, EntryKind, Reader, Sink, TarError};
pub use writer::{end, padding, write_comments, write_header};

/// Everything in an archive is a multiple of this.
pub const BLOCK: usize = 512;
