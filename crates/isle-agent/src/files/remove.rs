//! Removing a file or a tree. Links are removed, never followed.

use std::io;
use std::os::fd::OwnedFd;

use isle_wire::{RemoveRequest, Reply};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{As, Resolved, failure, shown};

pub(crate) fn remove(request: &RemoveRequest) -> Reply {
    let _as = As::user(request.at.user);
    let work = || -> io::Result<()> {
        let at = Resolved::new(&request.at)?;
        let (parent, name) = at.parent()?;
        let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?);
        }
        if !request.recursive {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        remove_directory(&parent, name, 0)
    };
    match work() {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Failed(failure(&error, format!("remove {}", shown(&request.at.path)))),
    }
}

fn remove_directory(parent: &OwnedFd, name: &[u8], depth: u32) -> io::Result<()> {
    const DEEPEST: u32 = 512;
    if depth > DEEPEST {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let inner = entry.file_name().to_bytes();
        if inner == b"." || inner == b".." {
            continue;
        }
        match rustix::fs::unlinkat(&directory, inner, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(rustix::io::Errno::ISDIR) => remove_directory(&directory, inner, depth + 1)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}
