//! Listing with a glob: the whole tree is walked, and only matching entries count.

use std::io;

use isle_trees::{Glob, Kind, Walker};
use isle_wire::{Entry, ListRequest, Listing, Reply};
use rustix::fs::OFlags;

use super::time_slice::TimeSlice;
use super::{As, Resolved, facts, failure, shown};
use crate::mode::Mode;

/// Maximum number of entries that are visited.
const MAX_VISITED: u64 = 1_000_000;

pub(crate) async fn find(mode: &Mode, request: &ListRequest, glob: &str) -> Reply {
    match work(mode, request, glob).await {
        Ok(listing) => Reply::Listing(listing),
        Err(error) => Reply::Failed(failure(&error, format!("list {}", shown(&request.at.path)))),
    }
}

async fn work(mode: &Mode, request: &ListRequest, glob: &str) -> io::Result<Listing> {
    let glob = Glob::new(glob).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let depth = usize::try_from(request.depth).unwrap_or(usize::MAX);
    let mut walker = {
        let _as = As::user(mode, request.at.user);
        let at = Resolved::new(mode, &request.at)?;
        Walker::new(at.open(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)?)?
    };
    let mut listing = Listing { entries: Vec::new(), truncated: false };
    let mut slice = TimeSlice::begin();
    let mut visited = 0;
    loop {
        {
            let _as = As::user(mode, request.at.user);
            while !slice.is_over() {
                let Some(found) = walker.step() else {
                    listing.entries.sort_by(|one, other| one.path.cmp(&other.path));
                    return Ok(listing);
                };
                visited += 1;
                // Counted whether it matches or not: a tree that changes while it is walked may be endless.
                if visited > MAX_VISITED {
                    return Ok(truncated(listing));
                }
                if found.kind == Kind::Directory && found.path.split(|&byte| byte == b'/').count() >= depth {
                    walker.skip();
                }
                if !glob.matches(&found.path) {
                    continue;
                }
                if listing.entries.len() >= limit {
                    return Ok(truncated(listing));
                }
                let target = walker
                    .directory()
                    .filter(|_| found.kind == Kind::Symlink)
                    .and_then(|directory| rustix::fs::readlinkat(directory, &found.name[..], Vec::new()).ok())
                    .map(|target| target.into_bytes().into());
                listing.entries.push(Entry {
                    path: found.path.into(),
                    stat: facts(mode, &found.stat),
                    target,
                });
            }
        }
        slice.end().await;
    }
}

fn truncated(mut listing: Listing) -> Listing {
    listing.truncated = true;
    listing.entries.sort_by(|one, other| one.path.cmp(&other.path));
    listing
}
