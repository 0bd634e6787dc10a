//! Listing with a glob: the whole tree is walked, and only what matches counts.

use std::io;

use isle_trees::{Glob, Kind, Walker};
use isle_wire::{Entry, ListRequest, Listing, Reply};
use rustix::fs::OFlags;

use super::turn::Turn;
use super::{As, Resolved, facts, failure, shown};

/// As many entries are looked at, and no more.
const MOST_LOOKED_AT: u64 = 1_000_000;

pub(crate) async fn find(request: &ListRequest, glob: &str) -> Reply {
    match work(request, glob).await {
        Ok(listing) => Reply::Listing(listing),
        Err(error) => Reply::Failed(failure(&error, format!("list {}", shown(&request.at.path)))),
    }
}

async fn work(request: &ListRequest, glob: &str) -> io::Result<Listing> {
    let glob = Glob::new(glob).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let depth = usize::try_from(request.depth).unwrap_or(usize::MAX);
    let mut walker = {
        let _as = As::user(request.at.user);
        let at = Resolved::new(&request.at)?;
        Walker::new(at.open(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)?)?
    };
    let mut listing = Listing { entries: Vec::new(), truncated: false };
    let mut turn = Turn::begin();
    let mut looked_at = 0;
    loop {
        {
            let _as = As::user(request.at.user);
            while !turn.is_over() {
                let Some(found) = walker.step() else {
                    listing.entries.sort_by(|one, other| one.path.cmp(&other.path));
                    return Ok(listing);
                };
                looked_at += 1;
                if found.kind == Kind::Directory && found.path.split(|&byte| byte == b'/').count() >= depth {
                    walker.skip();
                }
                if !glob.matches(&found.path) {
                    continue;
                }
                if listing.entries.len() >= limit || looked_at > MOST_LOOKED_AT {
                    listing.truncated = true;
                    listing.entries.sort_by(|one, other| one.path.cmp(&other.path));
                    return Ok(listing);
                }
                let target = walker
                    .directory()
                    .filter(|_| found.kind == Kind::Symlink)
                    .and_then(|directory| rustix::fs::readlinkat(directory, &found.name[..], Vec::new()).ok())
                    .map(|target| target.into_bytes().into());
                listing.entries.push(Entry { path: found.path.into(), stat: facts(&found.stat), target });
            }
        }
        turn.pass().await;
    }
}
