//! Whole trees: packing, unpacking, listing with hashes, and removing many files.

use std::io;

use isle_trees::{
    Bounds, Kind, Manifest, ManifestStep, PackOptions, Packer, UnpackError, Unpacker, prune_one,
};
use isle_wire::{
    ArchiveRefused, Carried, FailureKind, FileKind, Frame, FrameError, GuestUser, ManifestEntry,
    ManifestPart, ManifestRequest, PackRequest, PathRequest, PruneRequest, Reply, Stream, UnpackRequest,
    read_frame, write_frame, write_message,
};
use rustix::fs::{AtFlags, OFlags};
use std::os::fd::{AsFd, OwnedFd};

use super::rename::unmake;
use super::time_slice::TimeSlice;
use super::{As, Resolved, facts, failure, shown, trim};
use crate::mode::Mode;

/// Maximum size of the list of paths in one request.
const MAX_PATH_LIST: usize = 64 << 20;
/// Maximum number of manifest entries in one message.
const MAX_BATCH: usize = 200;

fn top(mode: &Mode, at: &PathRequest) -> io::Result<OwnedFd> {
    Resolved::new(mode, at)?.open(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)
}

pub(crate) async fn pack(stream: &mut Stream, mode: &Mode, request: &PackRequest) -> Result<(), FrameError> {
    let only = if request.listed { Some(names(stream).await?) } else { None };
    let user = request.at.user;
    let started = {
        let _as = As::user(mode, user);
        top(mode, &request.at).and_then(|top| {
            let stat = facts(mode, &rustix::fs::statat(&top, "", AtFlags::EMPTY_PATH)?);
            Ok((Packer::new(top, PackOptions { sparse_limit: request.hollow, only })?, stat))
        })
    };
    let (mut packer, stat) = match started {
        Ok(started) => started,
        Err(error) => {
            let failed = failure(&error, format!("read {}", shown(&request.at.path)));
            return write_message(stream, &Reply::Failed(failed)).await;
        }
    };
    write_message(stream, &Reply::Stat(stat)).await?;
    loop {
        let piece = {
            let _as = As::user(mode, user);
            packer.step()
        };
        let Some(piece) = piece else { break };
        if !piece.is_empty() {
            write_frame(stream, &Frame::Data(piece.into())).await?;
        }
        // A reader that is always ready must not starve other tasks.
        tokio::task::yield_now().await;
    }
    write_message(stream, &Reply::Carried(packer.carried().clone())).await?;
    write_frame(stream, &Frame::End).await
}

/// The list of paths that follows a request, up to an end frame.
async fn names(stream: &mut Stream) -> Result<Vec<Vec<u8>>, FrameError> {
    let mut all = Vec::new();
    loop {
        match read_frame(stream).await?.ok_or(FrameError::Ended)? {
            Frame::Data(bytes) if all.len() + bytes.len() <= MAX_PATH_LIST => all.extend_from_slice(&bytes),
            Frame::End => break,
            _ => return Err(FrameError::Unexpected("a list of paths")),
        }
    }
    Ok(all.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect())
}

/// Unpacking in progress. Undone on drop, with the permissions of the right user, unless it was finished.
struct Arrival<'a> {
    mode: &'a Mode,
    at: &'a PathRequest,
    unpacker: Option<Unpacker>,
    made: Vec<Vec<u8>>,
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let _as = As::user(self.mode, self.at.user);
        drop(self.unpacker.take());
        unmake(self.mode, self.at, std::mem::take(&mut self.made));
    }
}

impl<'a> Arrival<'a> {
    fn begin(mode: &'a Mode, request: &'a UnpackRequest) -> io::Result<Self> {
        let _as = As::user(mode, request.at.user);
        let mut arrival = Self { mode, at: &request.at, unpacker: None, made: Vec::new() };
        let at = Resolved::new(mode, &request.at)?;
        at.make_directories(trim(&at.path), &mut arrival.made)?;
        let bounds = Bounds { entries: request.entries, bytes: request.bytes, modes: 0o777 };
        arrival.unpacker = Some(Unpacker::new(top(mode, &request.at)?, bounds)?);
        Ok(arrival)
    }

    fn feed(&mut self, user: GuestUser, bytes: &[u8]) -> Result<(), UnpackError> {
        let _as = As::user(self.mode, user);
        self.unpacker.as_mut().map_or(Ok(()), |unpacker| unpacker.feed(bytes))
    }

    fn finish(&mut self, user: GuestUser) -> Result<Carried, UnpackError> {
        let _as = As::user(self.mode, user);
        let carried = self.unpacker.take().map_or(Ok(Carried::default()), Unpacker::finish)?;
        self.made.clear();
        Ok(carried)
    }
}

pub(crate) async fn unpack(
    stream: &mut Stream,
    mode: &Mode,
    request: &UnpackRequest,
) -> Result<(), FrameError> {
    let user = request.at.user;
    let (mut arrival, mut refused) = match Arrival::begin(mode, request) {
        Ok(arrival) => (Some(arrival), None),
        Err(error) => {
            (None, Some(Reply::Failed(failure(&error, format!("write {}", shown(&request.at.path))))))
        }
    };
    loop {
        match read_frame(stream).await?.ok_or(FrameError::Ended)? {
            Frame::End => break,
            Frame::Data(bytes) => {
                let fed = arrival.as_mut().map_or(Ok(()), |arrival| arrival.feed(user, &bytes));
                if let Err(error) = fed {
                    // The rest is read and dropped, so that the host reads the reply.
                    arrival = None;
                    refused = Some(refusal(&error, request));
                }
                tokio::task::yield_now().await;
            }
            _ => return Err(FrameError::Unexpected("an archive")),
        }
    }
    let reply = match (refused, arrival.as_mut()) {
        (Some(refused), _) => refused,
        (None, None) => Reply::Done,
        (None, Some(arrival)) => match arrival.finish(user) {
            Ok(carried) => Reply::Carried(carried),
            Err(error) => refusal(&error, request),
        },
    };
    drop(arrival);
    write_message(stream, &reply).await
}

fn refusal(error: &UnpackError, request: &UnpackRequest) -> Reply {
    match error {
        // Only checked when the host unpacks.
        UnpackError::GitDirectory => {
            Reply::ArchiveRefused(ArchiveRefused { too_large: false, why: error.to_string() })
        }
        UnpackError::Archive(why) => {
            let too_large = matches!(why, isle_trees::tar::TarError::TooLarge(..));
            Reply::ArchiveRefused(ArchiveRefused { why: why.to_string(), too_large })
        }
        UnpackError::Io { doing, error } => {
            Reply::Failed(failure(error, format!("{doing} in {}", shown(&request.at.path))))
        }
        UnpackError::InTheWay { found, .. } => {
            let kind =
                if *found == "a directory" { FailureKind::IsDirectory } else { FailureKind::NotDirectory };
            Reply::Failed(isle_wire::Failure { kind, errno: 0, doing: error.to_string() })
        }
    }
}

pub(crate) async fn manifest(
    stream: &mut Stream,
    mode: &Mode,
    request: &ManifestRequest,
) -> Result<(), FrameError> {
    let user = request.at.user;
    let started = {
        let _as = As::user(mode, user);
        top(mode, &request.at).and_then(|top| Manifest::new(top, 1 << 30))
    };
    let mut manifest = match started {
        Ok(manifest) => manifest,
        Err(error) => {
            let failed = failure(&error, format!("list {}", shown(&request.at.path)));
            return write_message(stream, &Reply::Failed(failed)).await;
        }
    };
    write_message(stream, &Reply::Done).await?;
    let mut slice = TimeSlice::begin();
    let mut part = ManifestPart { entries: Vec::new(), truncated: false };
    let mut count = 0;
    // A file with several hard links is read once for each.
    let mut left = request.bytes.unwrap_or(u64::MAX);
    let mut has_more = true;
    while has_more {
        {
            let _as = As::user(mode, user);
            while has_more && part.entries.len() < MAX_BATCH && !slice.is_over() {
                match manifest.step() {
                    ManifestStep::Entry(_) if count >= request.most => {
                        part.truncated = true;
                        has_more = false;
                    }
                    ManifestStep::Entry(entry) if entry.hash.is_some() && entry.size > left => {
                        part.truncated = true;
                        has_more = false;
                    }
                    ManifestStep::Entry(entry) => {
                        count += 1;
                        left -= entry.hash.map_or(0, |_| entry.size);
                        part.entries.push(described(entry));
                    }
                    ManifestStep::More => {}
                    ManifestStep::Done => has_more = false,
                }
            }
        }
        if part.entries.len() >= MAX_BATCH || (!has_more && (part.truncated || !part.entries.is_empty())) {
            write_message(stream, &part).await?;
            part.entries.clear();
        }
        slice.end().await;
    }
    write_frame(stream, &Frame::End).await
}

fn described(entry: isle_trees::ManifestEntry) -> ManifestEntry {
    let kind = match entry.kind {
        Kind::File => FileKind::File,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Other => FileKind::Other,
    };
    let hash = entry.hash.map(|hash| hash.to_vec().into());
    ManifestEntry { path: entry.path.into(), kind, mode: entry.mode, size: entry.size, hash }
}

/// Removes the listed files, links and empty directories.
pub(crate) async fn prune(
    stream: &mut Stream,
    mode: &Mode,
    request: &PruneRequest,
) -> Result<(), FrameError> {
    let paths = names(stream).await?;
    let user = request.at.user;
    let opened = {
        let _as = As::user(mode, user);
        top(mode, &request.at)
    };
    let top = match opened {
        Ok(top) => top,
        Err(error) => {
            let failed = failure(&error, format!("remove from {}", shown(&request.at.path)));
            return write_message(stream, &Reply::Failed(failed)).await;
        }
    };
    let mut removed = 0;
    let mut slice = TimeSlice::begin();
    for path in paths {
        {
            let _as = As::user(mode, user);
            match prune_one(top.as_fd(), &path) {
                Ok(true) => removed += 1,
                Ok(false) => {}
                Err(error) => {
                    let failed = failure(&error, format!("remove {}", shown(&path)));
                    return write_message(stream, &Reply::Failed(failed)).await;
                }
            }
        }
        if slice.is_over() {
            slice.end().await;
        }
    }
    write_message(stream, &Reply::Pruned(removed)).await
}
