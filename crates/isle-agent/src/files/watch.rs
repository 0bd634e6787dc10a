//! Reporting changes of files to the host, until it closes the stream or the directory is removed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use isle_trees::{ChangeKind, TreeEvent, TreeWatcher, WatchedBatch};
use isle_wire::{
    FailureKind, FileKind, FrameError, Reply, Stream, WatchBatch, WatchEvent, WatchKind, WatchRequest,
    write_message,
};
use rustix::fs::OFlags;
use tokio::io::AsyncReadExt;

use super::{As, Resolved, failure, kind_of, shown};
use crate::mode::Mode;

/// Changes within this time are reported together.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// How often it is checked whether the directory still exists.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of events in one message: a frame has a limit.
const MAX_BATCH: usize = 100;

pub(crate) async fn watch(
    stream: &mut Stream,
    mode: &Mode,
    request: &WatchRequest,
) -> Result<(), FrameError> {
    let started = {
        let _as = As::user(mode, request.at.user);
        // A duplicate is registered, so that the watcher keeps its own descriptor.
        begin(mode, request).and_then(|watcher| {
            let ready = crate::async_fd::register(watcher.as_fd().try_clone_to_owned()?)?;
            Ok((watcher, ready))
        })
    };
    let (mut watcher, ready) = match started {
        Ok(started) => started,
        Err(error) => {
            let mut failed = failure(&error, format!("watch {}", shown(&request.at.path)));
            if matches!(failed.errno, libc::EMFILE | libc::ENFILE | libc::ENOSPC) {
                failed.kind = FailureKind::TooManyWatches;
            }
            return write_message(stream, &Reply::Failed(failed)).await;
        }
    };
    write_message(stream, &Reply::Done).await?;
    let mut nothing = [0u8; 1];
    loop {
        tokio::select! {
            guard = ready.readable() => {
                if let Ok(mut guard) = guard {
                    guard.clear_ready();
                }
                tokio::time::sleep(BATCH_DELAY).await;
            }
            // The host sends nothing more; a read returns when it closes the stream.
            _ = stream.read(&mut nothing) => return Ok(()),
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
        let batch = {
            let _as = As::user(mode, request.at.user);
            watcher.read()
        };
        let WatchedBatch { events, overflow, ended } = batch.map_err(FrameError::Io)?;
        let mut events: Vec<WatchEvent> = events.into_iter().map(to_wire).collect();
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(MAX_BATCH));
            write_message(stream, &WatchBatch { events, overflow: false }).await?;
            events = rest;
        }
        if overflow {
            write_message(stream, &WatchBatch { events: Vec::new(), overflow }).await?;
        }
        if ended {
            return Ok(());
        }
    }
}

fn begin(mode: &Mode, request: &WatchRequest) -> io::Result<TreeWatcher> {
    let at = Resolved::new(mode, &request.at)?;
    let top = at.open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    if kind_of(&rustix::fs::fstat(&top)?) == FileKind::Directory {
        return TreeWatcher::new(top, request.recursive, None);
    }
    // For one file its directory is watched, so that replacing the file is reported too.
    let (parent, name) = at.parent()?;
    let name = name.to_vec();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent: OwnedFd = rustix::fs::openat(&parent, ".", flags, rustix::fs::Mode::empty())?;
    TreeWatcher::new(parent, false, Some(name))
}

fn to_wire(event: TreeEvent) -> WatchEvent {
    let kind = match event.what {
        ChangeKind::Created => WatchKind::Created,
        ChangeKind::Modified => WatchKind::Modified,
        ChangeKind::Removed => WatchKind::Removed,
        ChangeKind::Moved => WatchKind::Moved,
    };
    let TreeEvent { path, from, directory, .. } = event;
    WatchEvent { kind, path: path.into(), from: from.map(Into::into), directory }
}
