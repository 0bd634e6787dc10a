//! Directories by descriptor: listing, opening and removing without following a link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use crate::unpack::DEEPEST;
use crate::walk::{Kind, kind_of};

pub(crate) fn names(directory: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

pub(crate) fn open_directory(above: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(above, name, flags, Mode::empty())?)
}

/// Removes a file, or a directory with its contents. Symbolic links are removed, never followed.
pub fn remove_tree(above: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    remove_below(above, name, 0)
}

fn remove_below(above: BorrowedFd<'_>, name: &[u8], depth: usize) -> io::Result<()> {
    let stat = match rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if kind_of(&stat) != Kind::Directory {
        return Ok(rustix::fs::unlinkat(above, name, AtFlags::empty())?);
    }
    if depth >= DEEPEST {
        return Err(rustix::io::Errno::NAMETOOLONG.into());
    }
    let inner = open_directory(above, name)?;
    for inside in names(inner.as_fd())? {
        remove_below(inner.as_fd(), &inside, depth + 1)?;
    }
    Ok(rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)?)
}

pub(crate) fn look(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Kind>> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(kind_of(&stat))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
