//! Listing a directory, some levels deep. Links are listed, never followed.

use std::io;
use std::os::fd::OwnedFd;

use isle_wire::{Entry, FileKind, ListRequest, Listing, Reply};
use rustix::fs::{AtFlags, Dir, Mode as FileMode, OFlags};

use super::{As, Resolved, facts, failure, shown};
use crate::mode::Mode;

/// Maximum depth.
const MAX_DEPTH: u32 = 64;

pub(crate) fn list(mode: &Mode, request: &ListRequest) -> Reply {
    let _as = As::user(mode, request.at.user);
    let mut listing = Listing { entries: Vec::new(), truncated: false };
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let walked = Resolved::new(mode, &request.at)
        .and_then(|at| at.open(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK))
        .and_then(|directory| walk(mode, directory, b"", request.depth.min(MAX_DEPTH), limit, &mut listing));
    match walked {
        Ok(()) => {
            listing.entries.sort_by(|one, other| one.path.cmp(&other.path));
            Reply::Listing(listing)
        }
        Err(error) => Reply::Failed(failure(&error, format!("list {}", shown(&request.at.path)))),
    }
}

fn walk(
    mode: &Mode,
    directory: OwnedFd,
    prefix: &[u8],
    depth: u32,
    limit: usize,
    listing: &mut Listing,
) -> io::Result<()> {
    let mut below = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if listing.entries.len() >= limit {
            listing.truncated = true;
            return Ok(());
        }
        // Removed meanwhile.
        let Ok(stat) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let stat = facts(mode, &stat);
        let target = (stat.kind == FileKind::Symlink)
            .then(|| rustix::fs::readlinkat(&directory, name, Vec::new()).ok())
            .flatten()
            .map(|target| target.into_bytes().into());
        let path = if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() };
        if stat.kind == FileKind::Directory && depth > 1 {
            below.push((name.to_vec(), path.clone()));
        }
        listing.entries.push(Entry { path: path.into(), stat, target });
    }
    for (name, path) in below {
        let flags =
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Not readable, or replaced meanwhile: listed, not entered.
        if let Ok(inner) = rustix::fs::openat(&directory, name, flags, FileMode::empty()) {
            walk(mode, inner, &path, depth - 1, limit, listing)?;
        }
    }
    Ok(())
}
