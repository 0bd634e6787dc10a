//! Removing listed paths below a directory, and nothing else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags};

use crate::directories::remove_tree;
use crate::walk::{Kind, kind_of, open_beneath};

/// Removes files, symbolic links and empty directories; returns how many.
pub fn prune(top: BorrowedFd<'_>, paths: &[Vec<u8>]) -> io::Result<u64> {
    let mut removed = 0;
    for path in paths {
        removed += u64::from(prune_one(top, path)?);
    }
    Ok(removed)
}

/// Removes one path; `false` if it does not exist, or is a directory that is not empty.
pub fn prune_one(top: BorrowedFd<'_>, path: &[u8]) -> io::Result<bool> {
    let Some((directory, name)) = above(top, path)? else { return Ok(false) };
    let stat = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let flags = if kind_of(&stat) == Kind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match rustix::fs::unlinkat(&directory, name, flags) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes a file, or a directory with its contents.
pub fn remove_tree_beneath(top: BorrowedFd<'_>, path: &[u8]) -> io::Result<()> {
    match above(top, path)? {
        Some((directory, name)) => remove_tree(directory.as_fd(), name),
        None => Ok(()),
    }
}

fn above<'a>(top: BorrowedFd<'_>, path: &'a [u8]) -> io::Result<Option<(OwnedFd, &'a [u8])>> {
    let cut = path.iter().rposition(|&byte| byte == b'/');
    let (above, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
    match open_beneath(top, above, OFlags::PATH | OFlags::DIRECTORY) {
        Ok(directory) => Ok(Some((directory, name))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
