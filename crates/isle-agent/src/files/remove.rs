//! Removing a file or a tree. Links are removed, never followed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use isle_setup::tree;
use isle_wire::{RemoveRequest, Reply};
use rustix::fs::{AtFlags, FileType, OFlags};

use super::{As, Resolved, failure, shown};
use crate::helper_process;
use crate::mode::Mode;

/// What is removed: everything below a directory, or an entry of one.
enum Tree {
    Contents(OwnedFd),
    Entry(OwnedFd, Vec<u8>),
}

impl Tree {
    fn directory(&self) -> &OwnedFd {
        match self {
            Self::Contents(directory) | Self::Entry(directory, _) => directory,
        }
    }

    fn remove(&self) -> io::Result<()> {
        match self {
            Self::Contents(directory) => tree::remove_contents(directory.as_fd()),
            Self::Entry(parent, name) => tree::remove_at(parent.as_fd(), name),
        }
    }
}

pub(crate) async fn remove(mode: &Mode, request: &RemoveRequest) -> Reply {
    let removed = match remove_one(mode, request) {
        Ok(Some(tree)) => remove_tree(mode, &tree, request).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Failed(failure(&error, format!("remove {}", shown(&request.at.path)))),
    }
}

/// Removes what is no directory; gives the tree that is left to remove.
fn remove_one(mode: &Mode, request: &RemoveRequest) -> io::Result<Option<Tree>> {
    let _as = As::user(mode, request.at.user);
    let at = Resolved::new(mode, &request.at)?;
    if request.contents {
        let directory = at.open(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)?;
        return Ok(Some(Tree::Contents(directory)));
    }
    let (parent, name) = at.parent()?;
    let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
        return Ok(None);
    }
    if !request.recursive {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    let name = name.to_vec();
    Ok(Some(Tree::Entry(parent, name)))
}

/// In a helper process: the guest decides how large a tree is.
async fn remove_tree(mode: &Mode, tree: &Tree, request: &RemoveRequest) -> io::Result<()> {
    let work = || {
        let _as = As::user(mode, request.at.user);
        tree.remove().map(|()| 0)
    };
    helper_process::run(&[tree.directory().as_raw_fd()], None, work).await.map(drop)
}
