//! The files beside the database: a private directory, and small secret files that are either complete or
//! absent.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::error::StoreError;

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;
const STICKY: u32 = 0o1000;

/// Creates the directory, or restricts the mode of an existing one. A shared directory (sticky, or of another
/// user) is rejected: restricting it would affect others, and leaving it open is not safe.
pub(crate) fn private_directory(path: &Path) -> Result<(), StoreError> {
    let refused =
        |reason: &str| StoreError::UnsafeDirectory { path: path.to_owned(), reason: reason.to_owned() };
    match DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(refused("it is not a directory"));
        }
        Err(error) => return Err(StoreError::io("make the state directory", path, error)),
    }
    let metadata = fs::metadata(path).map_err(|error| StoreError::io("look at", path, error))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user"));
    }
    if metadata.mode() & STICKY != 0 {
        return Err(refused("it is shared between users"));
    }
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(PRIVATE_DIRECTORY))
            .map_err(|error| StoreError::io("make private", path, error))?;
    }
    Ok(())
}

/// Creates an empty private file if there is none, and removes the access of other users if there is one.
/// SQLite gives its side files the mode of the database, so this applies to all of them.
pub(crate) fn private_file(path: &Path) -> Result<(), StoreError> {
    let file = options()
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| StoreError::io("open", path, error))?;
    tighten(&file).map_err(|error| StoreError::io("make private", path, error))
}

/// Reads a small file; `None` when there is none.
pub(crate) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", path, error)),
    }
}

/// Size of a file; 0 when there is none.
pub(crate) fn size(path: &Path) -> Result<u64, StoreError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::io("look at", path, error)),
    }
}

/// Writes a small private file atomically.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let unfinished = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = options().create(true).truncate(true).open(&unfinished)?;
        tighten(&file)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| StoreError::io("write", &unfinished, error))?;
    rename_synced(&unfinished, path)
}

/// Renames, and syncs the directory.
pub(crate) fn rename_synced(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(|error| StoreError::io("rename", from, error))?;
    match to.parent() {
        Some(parent) => File::open(parent)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| StoreError::io("flush", parent, error)),
        None => Ok(()),
    }
}

pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // A symbolic link in place of one of our files is not followed.
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    options.read(true).write(true).mode(PRIVATE_FILE).custom_flags(no_follow);
    options
}

pub(crate) fn tighten(file: &File) -> io::Result<()> {
    if file.metadata()?.mode() & 0o777 == PRIVATE_FILE {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(PRIVATE_FILE))
}
