//! Moving an unpacked tree into place, after a check that every entry can be moved.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};

use crate::directories::{look, names, open_directory};
use crate::unpack::{DEEPEST, UnpackError, failed};
use crate::walk::Kind;

/// Checks that everything can be moved into place, before anything is moved.
pub(super) fn check(
    scratch: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    path: &mut Vec<u8>,
    depth: usize,
) -> Result<(), UnpackError> {
    let looking = || failed("inspect the existing files");
    if depth > DEEPEST {
        return Err(looking()(io::ErrorKind::InvalidFilename.into()));
    }
    for name in names(scratch).map_err(looking())? {
        let length = path.len();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let in_the_way = |found, due| UnpackError::InTheWay {
            path: String::from_utf8_lossy(path).into_owned(),
            found,
            due,
        };
        let coming = look(scratch, &name).map_err(looking())?;
        match (coming, look(target, &name).map_err(looking())?) {
            (_, None) | (None, _) => {}
            (Some(Kind::Directory), Some(Kind::Directory)) => {
                let (inner, other) = (open_directory(scratch, &name), open_directory(target, &name));
                let (inner, other) = (inner.map_err(looking())?, other.map_err(looking())?);
                check(inner.as_fd(), other.as_fd(), path, depth + 1)?;
            }
            (Some(Kind::Directory), Some(Kind::Symlink)) => {
                return Err(in_the_way("a symbolic link", "a directory"));
            }
            (Some(Kind::Directory), Some(_)) => return Err(in_the_way("a file", "a directory")),
            (Some(_), Some(Kind::Directory)) => return Err(in_the_way("a directory", "a file")),
            (Some(_), Some(Kind::Other)) => return Err(in_the_way("a pipe, socket or device", "a file")),
            (Some(_), Some(Kind::File)) => {
                // Renaming over it would bypass a read-only mode: a file that may not be written is not
                // replaced.
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                rustix::fs::openat(target, &name[..], flags, Mode::empty()).map_err(|error| {
                    failed(format!("write {}", String::from_utf8_lossy(path)))(error.into())
                })?;
            }
            (Some(_), Some(Kind::Symlink)) => {}
        }
        path.truncate(length);
    }
    Ok(())
}

pub(super) fn merge(scratch: BorrowedFd<'_>, target: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
    for name in names(scratch)? {
        let both = (look(scratch, &name)?, look(target, &name)?);
        if both == (Some(Kind::Directory), Some(Kind::Directory)) && depth <= DEEPEST {
            let (inner, other) = (open_directory(scratch, &name)?, open_directory(target, &name)?);
            merge(inner.as_fd(), other.as_fd(), depth + 1)?;
        } else {
            rustix::fs::renameat(scratch, &name[..], target, &name[..])?;
        }
    }
    Ok(())
}
