//! Moving a file or directory. Between two file systems of the sandbox a file is copied and then
//! removed; a directory is not moved that way.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use isle_wire::{FailureKind, MoveRequest, PathRequest, Reply};
use rustix::fs::{AtFlags, RenameFlags};

use super::write::swap_in;
use super::{As, Resolved, failure, shown};

/// Larger files are not copied from one file system to another: it would hold everybody up.
const LARGEST_COPY: u64 = 64 << 20;

pub(crate) fn relocate(request: &MoveRequest) -> Reply {
    let _as = As::user(request.from.user);
    let mut made = Vec::new();
    let moved = work(request, &mut made);
    if moved.is_err() {
        unmake(&request.to, made);
    }
    match moved {
        Ok(()) => Reply::Done,
        Err(error) => {
            let doing = format!("move {} to {}", shown(&request.from.path), shown(&request.to.path));
            let mut failed = failure(&error, doing);
            match failed.errno {
                libc::EEXIST => failed.kind = FailureKind::Exists,
                // From here this is no escape: both places were found.
                libc::ENOTSUP => failed.kind = FailureKind::OtherDevice,
                _ => {}
            }
            Reply::Failed(failed)
        }
    }
}

fn work(request: &MoveRequest, made: &mut Vec<Vec<u8>>) -> io::Result<()> {
    let (from, to) = (Resolved::new(&request.from)?, Resolved::new(&request.to)?);
    let (source, name) = from.parent()?;
    // Before anything is made: what is to be moved has to be there.
    rustix::fs::statat(&source, name, AtFlags::SYMLINK_NOFOLLOW)?;
    to.make_parents(made)?;
    let (target, new_name) = to.parent()?;
    let flags = if request.replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    match rustix::fs::renameat_with(&source, name, &target, new_name, flags) {
        Err(rustix::io::Errno::XDEV) => carry(&source, name, &target, new_name, request.replace),
        moved => Ok(moved?),
    }
}

fn carry(source: &OwnedFd, name: &[u8], target: &OwnedFd, new_name: &[u8], replace: bool) -> io::Result<()> {
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

/// Removes directories that were made for nothing, innermost first.
pub(super) fn unmake(request: &PathRequest, made: Vec<Vec<u8>>) {
    for path in made.into_iter().rev() {
        // In a container as in the host's directories, what was made is named from the same base.
        let Ok(at) = Resolved::new(request) else { return };
        let inner = Resolved { path: path.into(), ..at };
        if let Ok((parent, name)) = inner.parent() {
            rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).ok();
        }
    }
}
