//! The life of a sync: a full copy, then a round whenever the host says that something changed. What
//! the host says only wakes it; what has changed is found by looking, so nothing that is said wrongly,
//! too late or not at all is ever believed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isle_trees::{Selector, TreeWatcher};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::round::{Did, Memory};
use super::{LiveSync, SyncState};
use crate::lock;
use isle_core::Result;

/// What changes within this time is sent together.
const GATHER: Duration = Duration::from_millis(50);
/// How often a host that does not tell is looked at.
const POLL: Duration = Duration::from_millis(500);
/// How often it is looked whether the sandbox is still there.
const LOOK: Duration = Duration::from_millis(200);
/// A host that tells is looked at anyway, now and then.
const ANYWAY: Duration = Duration::from_secs(10);
/// After a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Follows until the end; whether there was ever a whole copy is the answer.
pub(super) async fn follow(
    job: Arc<LiveSync>,
    selector: Selector,
    leaving: CancellationToken,
    first: oneshot::Sender<Result<()>>,
    on_begun: impl FnOnce(),
) -> bool {
    // A sandbox that follows a directory is used, also while nothing changes.
    let _used = job.sandbox.hold();
    let wake = Arc::new(Notify::new());
    // Before the first copy, so that nothing that changes meanwhile is missed.
    let watching = if job.poll {
        None
    } else {
        let (job, wake) = (job.clone(), wake.clone());
        tokio::task::spawn_blocking(move || Watching::begin(&job, &wake)).await.ok().flatten()
    };
    let mut memory = Memory::new(selector);
    let begun = tokio::select! {
        begun = memory.round(&job) => begun,
        () = job.stop.cancelled() => Err(crate::pipeline::cancelled()),
    };
    let calm = if watching.is_some() { SyncState::Watching } else { SyncState::Polling };
    match begun {
        Ok(did) => {
            note(&job, calm, did, None);
            on_begun();
            first.send(Ok(())).ok();
        }
        Err(error) => {
            end(&job, error.message.clone());
            first.send(Err(error)).ok();
            return false;
        }
    }
    let why = loop {
        let pause = match lock(&job.progress).state {
            SyncState::Failing => RETRY,
            SyncState::Polling => POLL,
            SyncState::Starting | SyncState::Watching | SyncState::Ended => ANYWAY,
        };
        if let Some(why) = wait(&job, &wake, pause, &leaving).await {
            break why;
        }
        match memory.round(&job).await {
            Ok(did) => note(&job, calm, did, None),
            Err(_) if job.sandbox_is_gone() => break "the sandbox is gone".to_owned(),
            Err(error) => {
                memory.forget_sent();
                note(&job, SyncState::Failing, Did::default(), Some(error.message));
            }
        }
    };
    drop(watching);
    end(&job, why);
    true
}

/// Waits for a reason to look, or for the end, and says why it is over.
async fn wait(job: &LiveSync, wake: &Notify, pause: Duration, leaving: &CancellationToken) -> Option<String> {
    let deadline = tokio::time::Instant::now() + pause;
    loop {
        if job.sandbox_is_gone() {
            return Some("the sandbox is gone".into());
        }
        tokio::select! {
            () = job.stop.cancelled() => return Some("it was stopped".into()),
            () = leaving.cancelled() => return Some("the daemon ended".into()),
            () = wake.notified() => {
                tokio::time::sleep(GATHER).await;
                return None;
            }
            () = tokio::time::sleep_until(deadline) => return None,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

fn note(job: &LiveSync, state: SyncState, did: Did, note: Option<String>) {
    let mut progress = lock(&job.progress);
    progress.state = state;
    progress.note = note;
    if did != Did::default() {
        progress.rounds += 1;
        progress.files += did.files;
        progress.bytes += did.bytes;
        progress.removed += did.removed;
        progress.changed_ms = Some(isle_core::clock::wall_clock_ms());
    }
}

fn end(job: &LiveSync, why: String) {
    let mut progress = lock(&job.progress);
    progress.state = SyncState::Ended;
    progress.note = Some(why);
}

/// A thread that is told by the kernel what changes; it ends with this value.
struct Watching(Arc<AtomicBool>);

impl Watching {
    /// `None` when the kernel cannot tell; the host is looked at instead.
    fn begin(job: &LiveSync, wake: &Arc<Notify>) -> Option<Self> {
        let (top, _) = job.host.open().ok()?;
        let mut watcher = TreeWatcher::new(top, true, None).ok()?;
        if watcher.is_partial() {
            return None;
        }
        let over = Arc::new(AtomicBool::new(false));
        let (wake, is_over) = (wake.clone(), over.clone());
        std::thread::Builder::new()
            .name("isle-sync".into())
            .spawn(move || {
                let patience = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
                while !is_over.load(Ordering::Acquire) {
                    let mut ready = [PollFd::new(&watcher, PollFlags::IN)];
                    let Ok(count) = poll(&mut ready, Some(&patience)) else { continue };
                    if count == 0 {
                        continue;
                    }
                    match watcher.read() {
                        Ok(batch) => {
                            if batch.overflow || !batch.events.is_empty() || batch.ended {
                                wake.notify_one();
                            }
                            if batch.ended {
                                return;
                            }
                        }
                        Err(_) => return,
                    }
                }
            })
            .ok()?;
        Some(Self(over))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
