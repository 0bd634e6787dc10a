//! Telling the host what happens to files, until it leaves or they are gone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use isle_trees::{Happened, TreeEvent, TreeWatcher, WatchedBatch};
use isle_wire::{
    FailureKind, FileKind, FrameError, Reply, Stream, WatchBatch, WatchEvent, WatchKind, WatchRequest,
    write_message,
};
use rustix::fs::OFlags;
use tokio::io::AsyncReadExt;

use super::{As, Resolved, facts, failure, shown};

/// What happens within this time is told together.
const GATHER: Duration = Duration::from_millis(20);
/// How often it is looked whether the top is still there.
const LOOK: Duration = Duration::from_secs(1);
/// Events in one message: a frame has a limit.
const TOGETHER: usize = 100;

pub(crate) async fn watch(stream: &mut Stream, request: &WatchRequest) -> Result<(), FrameError> {
    let started = {
        let _as = As::user(request.at.user);
        // Readiness is asked of a second descriptor, so that the first stays ours alone.
        begin(request).and_then(|watcher| {
            let ready = crate::watched::watch(watcher.as_fd().try_clone_to_owned()?)?;
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
                tokio::time::sleep(GATHER).await;
            }
            // The host says nothing more; what comes is its leaving.
            _ = stream.read(&mut nothing) => return Ok(()),
            () = tokio::time::sleep(LOOK) => {}
        }
        let batch = {
            let _as = As::user(request.at.user);
            watcher.read()
        };
        let WatchedBatch { events, overflow, ended } = batch.map_err(FrameError::Io)?;
        let mut events: Vec<WatchEvent> = events.into_iter().map(told).collect();
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(TOGETHER));
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

fn begin(request: &WatchRequest) -> io::Result<TreeWatcher> {
    let at = Resolved::new(&request.at)?;
    let top = at.open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    if facts(&rustix::fs::fstat(&top)?).kind == FileKind::Directory {
        return TreeWatcher::new(top, request.recursive, None);
    }
    // One file: its directory tells, also when the file is replaced.
    let (parent, name) = at.parent()?;
    let name = name.to_vec();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent: OwnedFd = rustix::fs::openat(&parent, ".", flags, rustix::fs::Mode::empty())?;
    TreeWatcher::new(parent, false, Some(name))
}

fn told(event: TreeEvent) -> WatchEvent {
    let kind = match event.what {
        Happened::Created => WatchKind::Created,
        Happened::Modified => WatchKind::Modified,
        Happened::Removed => WatchKind::Removed,
        Happened::Moved => WatchKind::Moved,
    };
    let TreeEvent { path, from, directory, .. } = event;
    WatchEvent { kind, path: path.into(), from: from.map(Into::into), directory }
}
