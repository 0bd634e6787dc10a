//! Watches: what happens to files of a sandbox, for callers who ask now and then.
//!
//! Owns the watches in progress. Each follows a stream of its sandbox's agent and keeps the last events; a
//! cursor names the watch and says which of them a caller has seen. Events that were dropped before a caller
//! came are reported as an overflow, once. A watch that is not asked for in five minutes ends, and one whose
//! sandbox is gone ends, too; its last events can be read for a while.
//!
//! Called by the operation `watch_files`; callers that stream use the agent's stream directly
//! (`Engine::watch`). Calls nothing but the agent of the sandbox.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use futures::StreamExt;
pub use isle_api::ops::watch_files::{FileEvent, FileEventKind};
use isle_wire::{GuestUser, WatchBatch, WatchKind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::base::Tasks;
use crate::lock;
use crate::sandbox::Sandbox;
use isle_core::values::{GuestPath, SandboxId};
use isle_core::{Code, Error, Result};

/// Events that are kept for who is slow.
const KEPT: usize = 10_000;
/// A watch that nobody asked for so long is over.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Watches of one sandbox.
const MOST: usize = 32;

/// What happened since the last one.
#[derive(Debug, Clone, Default)]
pub struct FileUpdate {
    /// In their order.
    pub events: Vec<FileEvent>,
    /// More happened than is told: look at the files themselves.
    pub overflow: bool,
}

impl FileUpdate {
    pub(crate) fn of(batch: WatchBatch) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let events = batch
            .events
            .into_iter()
            .map(|event| FileEvent {
                kind: match event.kind {
                    WatchKind::Created => FileEventKind::Created,
                    WatchKind::Modified => FileEventKind::Modified,
                    WatchKind::Removed => FileEventKind::Removed,
                    WatchKind::Moved => FileEventKind::Moved,
                },
                path: text(&event.path),
                from: event.from.map(|from| text(&from)),
                directory: event.directory,
            })
            .collect();
        Self { events, overflow: batch.overflow }
    }
}

/// Where a caller is in a watch: `WATCH.NUMBER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    watch: String,
    next: u64,
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.watch, self.next)
    }
}

impl std::str::FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.split_once('.')
            .and_then(|(watch, next)| Some(Self { watch: watch.to_owned(), next: next.parse().ok()? }))
            .ok_or_else(|| {
                Error::new(Code::InvalidArgument, format!("{text:?} is not a cursor"))
                    .next("pass the cursor of the answer before, or none to begin")
            })
    }
}

/// What a caller is told.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) events: Vec<FileEvent>,
    pub(crate) overflow: bool,
    pub(crate) ended: bool,
    pub(crate) cursor: Cursor,
}

#[derive(Debug, Default)]
struct KeptEvents {
    /// Number of the first event that is kept.
    first: u64,
    events: VecDeque<FileEvent>,
    /// Up to this number, something was lost.
    lost_before: u64,
    ended: bool,
}

#[derive(Debug)]
struct Watch {
    id: String,
    sandbox: SandboxId,
    kept: Mutex<KeptEvents>,
    changed: watch::Sender<()>,
    asked: Mutex<Instant>,
    over: CancellationToken,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Watches {
    tasks: Arc<Tasks>,
    all: Mutex<Vec<Arc<Watch>>>,
}

impl Watches {
    pub(crate) fn new(tasks: Arc<Tasks>) -> Self {
        Self { tasks, all: Mutex::default() }
    }

    fn get(&self, cursor: &Cursor, sandbox: &SandboxId) -> Result<Arc<Watch>> {
        let found = lock(&self.all).iter().find(|watch| watch.id == cursor.watch).cloned();
        found.filter(|watch| watch.sandbox == *sandbox).ok_or_else(|| {
            Error::new(Code::WatchEnded, "the watch of this cursor is over")
                .next("call without a cursor to begin another, and look at the files once")
        })
    }

    fn forget(&self, id: &str) {
        lock(&self.all).retain(|watch| watch.id != id);
    }

    /// Begins a watch; what happens from now on is kept for its cursor.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        sandbox: &Sandbox,
        path: &GuestPath,
        user: GuestUser,
        recursive: bool,
    ) -> Result<Cursor> {
        let there = lock(&self.all).iter().filter(|watch| watch.sandbox == sandbox.id).count();
        if there >= MOST {
            return Err(Error::new(Code::LimitReached, format!("the sandbox has {there} watches already"))
                .next("go on with the cursor of one of them; a watch nobody asks for ends after 5 minutes"));
        }
        let mut batches = sandbox.agent()?.watch(path, user, recursive).await?;
        let id = isle_core::values::RunId::fresh().as_str().replace('.', "-");
        let watch = Arc::new(Watch {
            id: id.clone(),
            sandbox: sandbox.id.clone(),
            kept: Mutex::default(),
            changed: watch::Sender::new(()),
            asked: Mutex::new(Instant::now()),
            over: self.tasks.halted().clone(),
        });
        lock(&self.all).push(watch.clone());
        let watches: Weak<Self> = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    batch = batches.next() => match batch {
                        Some(Ok(batch)) => watch.add(FileUpdate::of(batch)),
                        Some(Err(_)) | None => break,
                    },
                    () = watch.over.cancelled() => break,
                    () = tokio::time::sleep(PATIENCE / 10) => {
                        if lock(&watch.asked).elapsed() > PATIENCE {
                            break;
                        }
                    }
                }
            }
            lock(&watch.kept).ended = true;
            watch.changed.send_replace(());
            // Whoever comes within reasonable time still gets the last events.
            drop(batches);
            tokio::time::sleep(PATIENCE / 10).await;
            if let Some(watches) = watches.upgrade() {
                watches.forget(&watch.id);
            }
        });
        Ok(Cursor { watch: id, next: 0 })
    }

    /// What happened after a cursor; waits for something at most so long.
    pub(crate) async fn seen_since(
        &self,
        sandbox: &SandboxId,
        cursor: Cursor,
        wait: Duration,
        limit: usize,
    ) -> Result<Seen> {
        let watch = self.get(&cursor, sandbox)?;
        let mut changed = watch.changed.subscribe();
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            *lock(&watch.asked) = Instant::now();
            let seen = watch.since(&cursor, limit);
            if !seen.events.is_empty() || seen.overflow || seen.ended {
                if seen.ended && seen.events.is_empty() {
                    self.forget(&watch.id);
                }
                return Ok(seen);
            }
            if tokio::time::timeout_at(deadline, changed.changed()).await.is_err() {
                return Ok(seen);
            }
        }
    }
}

impl Watch {
    fn add(&self, update: FileUpdate) {
        let mut kept = lock(&self.kept);
        for event in update.events {
            if kept.events.len() >= KEPT {
                kept.events.pop_front();
                kept.first += 1;
                kept.lost_before = kept.first;
            }
            kept.events.push_back(event);
        }
        if update.overflow {
            // A number of its own, so that everybody hears of it once.
            kept.events.clear();
            kept.first += KEPT as u64;
            kept.lost_before = kept.first;
        }
        drop(kept);
        self.changed.send_replace(());
    }

    fn since(&self, cursor: &Cursor, limit: usize) -> Seen {
        let kept = lock(&self.kept);
        let overflow = cursor.next < kept.lost_before;
        let from = cursor.next.max(kept.first);
        let skip = usize::try_from(from - kept.first).unwrap_or(usize::MAX);
        let events: Vec<FileEvent> = kept.events.iter().skip(skip).take(limit).cloned().collect();
        let next = from + events.len() as u64;
        let ended = kept.ended && next >= kept.first + kept.events.len() as u64;
        Seen { events, overflow, ended, cursor: Cursor { watch: cursor.watch.clone(), next } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch {
            id: "w".into(),
            sandbox: SandboxId::fresh(),
            kept: Mutex::default(),
            changed: watch::Sender::new(()),
            asked: Mutex::new(Instant::now()),
            over: CancellationToken::new(),
        }
    }

    fn event(number: usize) -> FileEvent {
        FileEvent { kind: FileEventKind::Created, path: number.to_string(), from: None, directory: false }
    }

    #[test]
    fn a_cursor_sees_everything_once_and_hears_of_what_was_lost_once() {
        let watch = watch();
        let start = Cursor { watch: "w".into(), next: 0 };
        watch.add(FileUpdate { events: vec![event(0), event(1)], overflow: false });
        let seen = watch.since(&start, 1);
        assert_eq!((seen.events, seen.overflow), (vec![event(0)], false));
        let seen = watch.since(&seen.cursor, 10);
        assert_eq!(seen.events, [event(1)]);
        let at_end = seen.cursor;
        assert!(watch.since(&at_end, 10).events.is_empty());
        watch.add(FileUpdate { events: Vec::new(), overflow: true });
        let seen = watch.since(&at_end, 10);
        assert!(seen.overflow && seen.events.is_empty());
        assert!(!watch.since(&seen.cursor, 10).overflow);
        watch.add(FileUpdate { events: (0..KEPT + 5).map(event).collect(), overflow: false });
        let seen = watch.since(&seen.cursor, 1);
        assert_eq!((seen.events, seen.overflow), (vec![event(5)], true));
        assert_eq!("w.7".parse::<Cursor>().unwrap(), Cursor { watch: "w".into(), next: 7 });
        assert!("w".parse::<Cursor>().is_err() && "w.x".parse::<Cursor>().is_err());
    }
}
