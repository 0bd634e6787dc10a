//! Renaming a file or directory. Between two file systems of the sandbox a file is copied and then removed;
//! directories are not.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use isle_wire::{FailureKind, MoveRequest, PathRequest, Reply};
use rustix::fs::{AtFlags, RenameFlags};

use super::write::swap_in;
use super::{As, Resolved, failure, shown};
use crate::mode::Mode;

/// Larger files are not copied between file systems: it would block all other streams.
const LARGEST_COPY: u64 = 64 << 20;

pub(crate) fn rename(mode: &Mode, request: &MoveRequest) -> Reply {
    let _as = As::user(mode, request.from.user);
    let mut made = Vec::new();
    let moved = work(mode, request, &mut made);
    if moved.is_err() {
        unmake(mode, &request.to, made);
    }
    match moved {
        Ok(()) => Reply::Done,
        Err(error) => {
            let doing = format!("move {} to {}", shown(&request.from.path), shown(&request.to.path));
            let mut failed = failure(&error, doing);
            match failed.errno {
                libc::EEXIST => failed.kind = FailureKind::Exists,
                // Not an escape from here: both paths were resolved.
                libc::ENOTSUP => failed.kind = FailureKind::OtherDevice,
                _ => {}
            }
            Reply::Failed(failed)
        }
    }
}

fn work(mode: &Mode, request: &MoveRequest, made: &mut Vec<Vec<u8>>) -> io::Result<()> {
    let (from, to) = (Resolved::new(mode, &request.from)?, Resolved::new(mode, &request.to)?);
    let (source, name) = from.parent()?;
    // The source has to exist before parent directories of the target are created.
    rustix::fs::statat(&source, name, AtFlags::SYMLINK_NOFOLLOW)?;
    to.make_parents(made)?;
    let (target, new_name) = to.parent()?;
    let flags = if request.replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    match rustix::fs::renameat_with(&source, name, &target, new_name, flags) {
        Err(rustix::io::Errno::XDEV) => copy_and_remove(&source, name, &target, new_name, request.replace),
        moved => Ok(moved?),
    }
}

fn copy_and_remove(
    source: &OwnedFd,
    name: &[u8],
    target: &OwnedFd,
    new_name: &[u8],
    replace: bool,
) -> io::Result<()> {
    let cannot = || io::Error::from_raw_os_error(libc::ENOTSUP);
    if !replace && rustix::fs::statat(target, new_name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    let (file, stat) = isle_trees::open_regular(source.as_fd(), name).map_err(|_| cannot())?;
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size > LARGEST_COPY {
        return Err(cannot());
    }
    let mut contents = vec![0u8; usize::try_from(size).unwrap_or(0)];
    let mut at = 0;
    while at < contents.len() {
        match rustix::io::pread(&file, &mut contents[at..], at as u64)? {
            0 => break,
            count => at += count,
        }
    }
    contents.truncate(at);
    swap_in(target, new_name, stat.st_mode & 0o777, &contents)?;
    Ok(rustix::fs::unlinkat(source, name, AtFlags::empty())?)
}

/// Removes directories that were created for nothing, innermost first.
pub(super) fn unmake(mode: &Mode, request: &PathRequest, made: Vec<Vec<u8>>) {
    for path in made.into_iter().rev() {
        // The created directories are relative to the same base.
        let Ok(at) = Resolved::new(mode, request) else { return };
        let inner = Resolved { path: path.into(), ..at };
        if let Ok((parent, name)) = inner.parent() {
            rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).ok();
        }
    }
}
