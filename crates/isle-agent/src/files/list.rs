//! Listing a directory, some levels deep. Links are shown, never followed.

use std::io;
use std::os::fd::OwnedFd;

use isle_wire::{Entry, FileKind, ListRequest, Listing, Reply};
use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use super::{As, Resolved, facts, failure, shown};

/// Deeper trees exist only to hurt.
const DEEPEST: u32 = 64;

pub(crate) fn list(request: &ListRequest) -> Reply {
    let _as = As::user(request.at.user);
    let mut listing = Listing { entries: Vec::new(), truncated: false };
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let walked = Resolved::new(&request.at)
        .and_then(|at| at.open(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK))
        .and_then(|directory| walk(directory, b"", request.depth.min(DEEPEST), limit, &mut listing));
    match walked {
        Ok(()) => {
            listing.entries.sort_by(|one, other| one.path.cmp(&other.path));
            Reply::Listing(listing)
        }
        Err(error) => Reply::Failed(failure(&error, format!("list {}", shown(&request.at.path)))),
    }
}

fn walk(
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
        // Gone meanwhile: not part of the answer.
        let Ok(stat) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let stat = facts(&stat);
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
        // Not readable, or swapped for something else meanwhile: listed, not entered.
        if let Ok(inner) = rustix::fs::openat(&directory, name, flags, Mode::empty()) {
            walk(inner, &path, depth - 1, limit, listing)?;
        }
    }
    Ok(())
}
