//! The files around the database: a private directory, the lock that keeps a second opener out, and
//! small secret files that are either whole or absent.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::error::StoreError;

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;
const STICKY: u32 = 0o1000;

/// Makes the directory, or tightens one that exists. One that is shared by design (sticky, or somebody
/// else's) is refused: closing it would harm others, leaving it open would harm us.
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

/// Makes an empty private file when there is none, and takes others' rights away when there is one.
/// SQLite gives its side files the mode of the database, so this settles them all.
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

/// Writes a small private file so that a crash leaves either the whole of it or nothing.
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

/// Renames, and makes the renaming last.
pub(crate) fn rename_synced(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(|error| StoreError::io("rename", from, error))?;
    match to.parent() {
        Some(parent) => File::open(parent)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| StoreError::io("flush", parent, error)),
        None => Ok(()),
    }
}

/// A held lock. The kernel lets go of it when the process dies, however it dies.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child that has been forked and has not yet reached its `exec` has
        // the file open as well, and would keep the lock.
        if let Err(error) = rustix::fs::flock(&self.0, FlockOperation::Unlock) {
            tracing::warn!(%error, "could not unlock the state directory");
        }
    }
}

/// How long a lock may outlive its holder: a child that it was about to make has it until it is a program
/// of its own.
const LAST_BREATH: Duration = Duration::from_secs(5);

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    text.trim().parse().ok()
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Takes the lock of the directory.
pub(crate) fn lock(path: &Path) -> Result<Lock, StoreError> {
    let mut file = options()
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| StoreError::io("open", path, error))?;
    let patience = Instant::now() + LAST_BREATH;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) => {
                // The holder writes its pid after locking, so a lock may be seen before its pid is.
                let pid = holder(&mut file);
                if pid.is_none_or(is_alive) || Instant::now() > patience {
                    return Err(StoreError::Locked { pid });
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(StoreError::io("lock", path, error.into())),
        }
    }
    let mut record = || -> io::Result<()> {
        tighten(&file)?;
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    record().map_err(|error| StoreError::io("write", path, error))?;
    Ok(Lock(file))
}

pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // A link planted under one of our names must not lead elsewhere.
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    options.read(true).write(true).mode(PRIVATE_FILE).custom_flags(no_follow);
    options
}

fn tighten(file: &File) -> io::Result<()> {
    if file.metadata()?.mode() & 0o777 == PRIVATE_FILE {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(PRIVATE_FILE))
}
