//! Removing a file or a tree. Links are removed, never followed.

use std::io;
use std::os::fd::AsFd;

use isle_linux::tree;
use isle_wire::{RemoveRequest, Reply};
use rustix::fs::{AtFlags, FileType, OFlags};

use super::{As, Resolved, failure, shown};

pub(crate) fn remove(request: &RemoveRequest) -> Reply {
    let _as = As::user(request.at.user);
    let work = || -> io::Result<()> {
        let at = Resolved::new(&request.at)?;
        if request.contents {
            let directory = at.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
            return tree::remove_contents(directory.as_fd());
        }
        let (parent, name) = at.parent()?;
        let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?);
        }
        if !request.recursive {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        tree::remove_at(parent.as_fd(), name)
    };
    match work() {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Failed(failure(&error, format!("remove {}", shown(&request.at.path)))),
    }
}
