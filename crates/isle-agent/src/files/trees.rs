//! Whole trees to and from the host: packed, unpacked, described, pruned.

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

use super::relocate::unmake;
use super::turn::Turn;
use super::{As, Resolved, facts, failure, shown, trim};

/// Bytes of paths the host may name in one request.
const MOST_NAMED: usize = 64 << 20;
/// Entries of a manifest in one message.
const TOGETHER: usize = 200;

fn top(at: &PathRequest) -> io::Result<OwnedFd> {
    Resolved::new(at)?.open(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)
}

pub(crate) async fn pack(stream: &mut Stream, request: &PackRequest) -> Result<(), FrameError> {
    let only = if request.listed { Some(names(stream).await?) } else { None };
    let user = request.at.user;
    let started = {
        let _as = As::user(user);
        top(&request.at).and_then(|top| {
            let stat = facts(&rustix::fs::statat(&top, "", AtFlags::EMPTY_PATH)?);
            Ok((Packer::new(top, PackOptions { hollow: request.hollow, only })?, stat))
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
            let _as = As::user(user);
            packer.piece()
        };
        let Some(piece) = piece else { break };
        write_frame(stream, &Frame::Data(piece.into())).await?;
        // A reader that is always ready must not be the only one who gets a turn.
        tokio::task::yield_now().await;
    }
    write_message(stream, &Reply::Carried(packer.carried().clone())).await?;
    write_frame(stream, &Frame::End).await
}

/// Paths the host names, up to an end frame.
async fn names(stream: &mut Stream) -> Result<Vec<Vec<u8>>, FrameError> {
    let mut all = Vec::new();
    loop {
        match read_frame(stream).await?.ok_or(FrameError::Ended)? {
            Frame::Data(bytes) if all.len() + bytes.len() <= MOST_NAMED => all.extend_from_slice(&bytes),
            Frame::End => break,
            _ => return Err(FrameError::Unexpected("a list of paths")),
        }
    }
    Ok(all.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect())
}

/// An unpacking that is undone, with the right rights, unless it is finished.
struct Arrival<'a> {
    at: &'a PathRequest,
    unpacker: Option<Unpacker>,
    made: Vec<Vec<u8>>,
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let _as = As::user(self.at.user);
        drop(self.unpacker.take());
        unmake(self.at, std::mem::take(&mut self.made));
    }
}

impl<'a> Arrival<'a> {
    fn begin(request: &'a UnpackRequest) -> io::Result<Self> {
        let _as = As::user(request.at.user);
        let mut arrival = Self { at: &request.at, unpacker: None, made: Vec::new() };
        let at = Resolved::new(&request.at)?;
        at.make_directories(trim(&at.path), &mut arrival.made)?;
        let bounds = Bounds { entries: request.entries, bytes: request.bytes, modes: 0o777 };
        arrival.unpacker = Some(Unpacker::new(top(&request.at)?, bounds)?);
        Ok(arrival)
    }

    fn feed(&mut self, user: GuestUser, bytes: &[u8]) -> Result<(), UnpackError> {
        let _as = As::user(user);
        self.unpacker.as_mut().map_or(Ok(()), |unpacker| unpacker.feed(bytes))
    }

    fn finish(&mut self, user: GuestUser) -> Result<Carried, UnpackError> {
        let _as = As::user(user);
        let carried = self.unpacker.take().map_or(Ok(Carried::default()), Unpacker::finish)?;
        self.made.clear();
        Ok(carried)
    }
}

pub(crate) async fn unpack(stream: &mut Stream, request: &UnpackRequest) -> Result<(), FrameError> {
    let user = request.at.user;
    let (mut arrival, mut refused) = match Arrival::begin(request) {
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
                    // The rest is read and dropped, so that the answer finds a listener.
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

pub(crate) async fn manifest(stream: &mut Stream, request: &ManifestRequest) -> Result<(), FrameError> {
    let user = request.at.user;
    let started = {
        let _as = As::user(user);
        top(&request.at).and_then(|top| Manifest::new(top, 1 << 30))
    };
    let mut manifest = match started {
        Ok(manifest) => manifest,
        Err(error) => {
            let failed = failure(&error, format!("list {}", shown(&request.at.path)));
            return write_message(stream, &Reply::Failed(failed)).await;
        }
    };
    write_message(stream, &Reply::Done).await?;
    let mut turn = Turn::begin();
    let mut part = ManifestPart { entries: Vec::new(), truncated: false };
    let mut count = 0;
    let mut goes_on = true;
    while goes_on {
        {
            let _as = As::user(user);
            while goes_on && part.entries.len() < TOGETHER && !turn.is_over() {
                match manifest.step() {
                    ManifestStep::Entry(_) if count >= request.most => {
                        part.truncated = true;
                        goes_on = false;
                    }
                    ManifestStep::Entry(entry) => {
                        count += 1;
                        part.entries.push(described(entry));
                    }
                    ManifestStep::More => {}
                    ManifestStep::Done => goes_on = false,
                }
            }
        }
        if part.entries.len() >= TOGETHER || (!goes_on && (part.truncated || !part.entries.is_empty())) {
            write_message(stream, &part).await?;
            part.entries.clear();
        }
        turn.pass().await;
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

/// Removes what the host names: files, links and directories that are empty by then.
pub(crate) async fn prune(stream: &mut Stream, request: &PruneRequest) -> Result<(), FrameError> {
    let paths = names(stream).await?;
    let user = request.at.user;
    let opened = {
        let _as = As::user(user);
        top(&request.at)
    };
    let top = match opened {
        Ok(top) => top,
        Err(error) => {
            let failed = failure(&error, format!("remove from {}", shown(&request.at.path)));
            return write_message(stream, &Reply::Failed(failed)).await;
        }
    };
    let mut removed = 0;
    let mut turn = Turn::begin();
    for path in paths {
        {
            let _as = As::user(user);
            match prune_one(top.as_fd(), &path) {
                Ok(true) => removed += 1,
                Ok(false) => {}
                Err(error) => {
                    let failed = failure(&error, format!("remove {}", shown(&path)));
                    return write_message(stream, &Reply::Failed(failed)).await;
                }
            }
        }
        if turn.is_over() {
            turn.pass().await;
        }
    }
    write_message(stream, &Reply::Pruned(removed)).await
}
