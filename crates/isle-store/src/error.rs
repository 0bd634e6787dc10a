//! Why the store could not do something. Every sentence says what happened and what to do about it;
//! the variants are what a caller can act on.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rusqlite::ffi;
use rustix::io::Errno;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Written by a newer version of Isle. Nothing was touched.
    #[error(
        "the state database has schema version {found}, this program knows up to {known}; use the newer program, or another state directory"
    )]
    TooNew {
        /// Version in the file.
        found: u32,
        /// Newest version this program knows.
        known: u32,
    },
    /// Not a database of Isle's, or a damaged one. Nothing was touched.
    #[error(
        "{} cannot be used as the state database: {reason}; nothing was changed: restore a backup or move the file away",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The disk, or the limit on the database, is full. Nothing of the call was kept.
    #[error("the disk of the state directory is full; free some space and try again")]
    Full,
    /// The disk gives errors, or was made read-only because of them. Nothing of the call was kept.
    #[error("the disk of the state directory gives errors ({reason}); see to the disk and try again")]
    Broken {
        /// What was seen.
        reason: String,
    },
    /// Another program holds this state directory.
    #[error(
        "the state directory is in use by {}; stop that one first, or use another directory",
        match pid { Some(pid) => format!("process {pid}"), None => "another process".to_owned() }
    )]
    Locked {
        /// Who, when it said so.
        pid: Option<u32>,
    },
    /// The directory cannot be kept private.
    #[error("{} cannot be the state directory: {reason}; use a directory of your own", path.display())]
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A live sandbox has that name already.
    #[error("a live sandbox already has the name {name:?}; use it, or destroy it first")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A run that has not ended has that name already.
    #[error("a job named {name:?} goes on in the sandbox already")]
    JobTaken {
        /// The name.
        name: String,
    },
    /// That id is in use already.
    #[error("the id {id:?} is already recorded; every sandbox and run needs its own")]
    DuplicateId {
        /// The id.
        id: String,
    },
    /// No such sandbox.
    #[error("no sandbox with the id {id:?} is recorded; list the sandboxes to see which are")]
    SandboxNotFound {
        /// The id.
        id: String,
    },
    /// No such run.
    #[error("no run with the id {id:?} is recorded; list the runs to see which are")]
    RunNotFound {
        /// The id.
        id: String,
    },
    /// The run is final; what it recorded stays as it is.
    #[error("the run {id:?} has already ended as {state:?}; its record stays as it is")]
    AlreadyFinished {
        /// The id.
        id: String,
        /// How it ended.
        state: String,
    },
    /// A word that is not one of the known ones.
    #[error("{value:?} is not a {what}; use one of {known}")]
    UnknownWord {
        /// What the word should have been.
        what: &'static str,
        /// What it was.
        value: String,
        /// The words there are.
        known: &'static str,
    },
    /// A list was asked for with a limit outside the range.
    #[error("the limit {limit} is out of range; use 1 to {max}")]
    LimitOutOfRange {
        /// What was asked.
        limit: u32,
        /// The most there may be.
        max: u32,
    },
    /// A file operation failed.
    #[error("could not {doing} {}: {source}; check the directory's owner and permissions", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// SQLite refused.
    #[error("the state database failed: {0}; try again, and check the disk if it happens again")]
    Database(rusqlite::Error),
    /// A value could not be turned into, or read from, JSON.
    #[error("a stored value is not valid JSON: {0}; the record was changed by something other than Isle")]
    Json(#[from] serde_json::Error),
}

impl StoreError {
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ if source.raw_os_error().is_some_and(is_of_a_broken_disk) => {
                Self::Broken { reason: format!("could not {doing} {}: {source}", path.display()) }
            }
            _ => Self::Io { doing, path: path.to_owned(), source },
        }
    }
}

/// What the kernel says when a disk, or the file system on it, cannot be relied on.
fn is_of_a_broken_disk(errno: i32) -> bool {
    // EFSCORRUPTED and EFSBADCRC of file systems are these two.
    const DAMAGED: [Errno; 2] = [Errno::UCLEAN, Errno::BADMSG];
    let errno = Errno::from_raw_os_error(errno);
    matches!(errno, Errno::IO | Errno::ROFS) || DAMAGED.contains(&errno)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error() {
            Some(failure) if failure.code == ErrorCode::DiskFull => Self::Full,
            // The shared-memory file could not grow: SQLite has no better word for a full disk there.
            Some(failure) if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => Self::Full,
            Some(failure) if matches!(failure.code, ErrorCode::SystemIoFailure | ErrorCode::ReadOnly) => {
                Self::Broken { reason: error.to_string() }
            }
            _ => Self::Database(error),
        }
    }
}

/// Whether the failure is a broken uniqueness rule on the given `table.column`.
pub(crate) fn violates_unique(error: &rusqlite::Error, column: &str) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, Some(text)) => {
            failure.code == ErrorCode::ConstraintViolation && text.contains(column)
        }
        _ => false,
    }
}

/// Whether the failure says that the file itself is bad.
pub(crate) fn means_corrupt(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
