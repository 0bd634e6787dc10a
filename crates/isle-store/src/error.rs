//! Errors of the store. Every message says what happened and what to do about it; the variants are what a
//! caller can act on.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rusqlite::ffi;
use rustix::io::Errno;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Written by a newer version of Isle. Nothing was changed.
    #[error(
        "the state database has schema version {found}, this program supports up to {known}; use the newer program, or another state directory"
    )]
    TooNew {
        /// Version in the file.
        found: u32,
        /// Newest version this program knows.
        known: u32,
    },
    /// Not a database of Isle, or a damaged one. Nothing was changed.
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
    /// The disk is full, or the database has reached its limit. The call had no effect.
    #[error("the disk of the state directory is full; free some space and try again")]
    Full,
    /// The disk reports errors, or was remounted read-only because of them. The call had no effect.
    #[error("the disk of the state directory reports errors ({reason}); check the disk and try again")]
    Broken {
        /// What was seen.
        reason: String,
    },
    /// Another process uses this state directory.
    #[error(
        "the state directory is in use by {}; stop it first, or use another directory",
        match pid { Some(pid) => format!("process {pid}"), None => "another process".to_owned() }
    )]
    Locked {
        /// Its process id, if known.
        pid: Option<u32>,
    },
    /// The identity of the directory cannot be read. Nothing was changed.
    #[error("{} cannot be used as the identity of the state directory: {reason}; nothing was changed", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system has no random bytes.
    #[error("could not get random bytes from the system: {reason}")]
    Randomness {
        /// The reason.
        reason: String,
    },
    /// The directory cannot be kept private.
    #[error("{} cannot be used as the state directory: {reason}; use a directory of your own", path.display())]
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A sandbox with this name already exists.
    #[error("a sandbox named {name:?} already exists; use it, or destroy it first")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A running job has this name.
    #[error("a job named {name:?} is already running in the sandbox")]
    JobTaken {
        /// The name.
        name: String,
    },
    /// The id is already in use.
    #[error("the id {id:?} is already in use; every sandbox and run needs a unique id")]
    DuplicateId {
        /// The id.
        id: String,
    },
    /// No such sandbox.
    #[error("no sandbox with the id {id:?}; list the sandboxes to see which exist")]
    SandboxNotFound {
        /// The id.
        id: String,
    },
    /// No such run.
    #[error("no run with the id {id:?}; list the runs to see which exist")]
    RunNotFound {
        /// The id.
        id: String,
    },
    /// The run has already finished; its record is not changed.
    #[error("the run {id:?} has already finished as {state:?}; its record was not changed")]
    AlreadyFinished {
        /// The id.
        id: String,
        /// Its final state.
        state: String,
    },
    /// An unknown value.
    #[error("{value:?} is not a valid {what}; use one of {known}")]
    UnknownWord {
        /// What the value is for.
        what: &'static str,
        /// The value.
        value: String,
        /// The valid values.
        known: &'static str,
    },
    /// The limit of a listing is out of range.
    #[error("the limit {limit} is out of range; use 1 to {max}")]
    LimitOutOfRange {
        /// The requested limit.
        limit: u32,
        /// The maximum.
        max: u32,
    },
    /// Too many listings of one caller are waiting.
    #[error("{most} listings of the same caller are already waiting; retry later")]
    TooManyListings {
        /// The maximum.
        most: usize,
    },
    /// A listing took too long and was cancelled.
    #[error("the listing took too long and was cancelled; request fewer rows, or retry later")]
    Interrupted,
    /// A file operation failed.
    #[error("could not {doing} {}: {source}; check the directory's owner and permissions", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// SQLite failed.
    #[error("the state database failed: {0}; try again, and check the disk if it persists")]
    Database(rusqlite::Error),
    /// A value could not be converted to or from JSON.
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

/// Error codes of a failing disk or a damaged file system.
fn is_of_a_broken_disk(errno: i32) -> bool {
    // File systems use them as EFSCORRUPTED and EFSBADCRC.
    const DAMAGED: [Errno; 2] = [Errno::UCLEAN, Errno::BADMSG];
    let errno = Errno::from_raw_os_error(errno);
    matches!(errno, Errno::IO | Errno::ROFS) || DAMAGED.contains(&errno)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error() {
            Some(failure) if failure.code == ErrorCode::DiskFull => Self::Full,
            Some(failure) if failure.code == ErrorCode::OperationInterrupted => Self::Interrupted,
            // The shared-memory file could not grow: the disk is full.
            Some(failure) if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => Self::Full,
            Some(failure) if matches!(failure.code, ErrorCode::SystemIoFailure | ErrorCode::ReadOnly) => {
                Self::Broken { reason: error.to_string() }
            }
            _ => Self::Database(error),
        }
    }
}

/// Whether the failure is a violated unique constraint on the given `table.column`.
pub(crate) fn violates_unique(error: &rusqlite::Error, column: &str) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, Some(text)) => {
            failure.code == ErrorCode::ConstraintViolation && text.contains(column)
        }
        _ => false,
    }
}

/// Whether the failure means that the file is damaged.
pub(crate) fn means_corrupt(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
