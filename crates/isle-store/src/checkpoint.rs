//! The thread that does every `fsync`. A commit only appends to the write-ahead log; this thread folds
//! the log into the database about a second later, and starts the log over when nobody is writing.
//!
//! SQLite lets the first writer after a complete checkpoint start the log over, which costs that writer
//! a flush. So the thread always keeps one read transaction open (the *pin*): while it stands the log
//! only grows, and when the log is to start over the thread writes the first frame itself.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, MAIN_DB};

use crate::connection::{PAGE_SHIFT, connect_further};
use crate::error::StoreError;
use crate::store::Shared;

/// How long a commit may wait for its flush.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// Pages of new log that are folded in at once: 4 MiB.
const FLUSH_PAGES: u32 = 4 << 20 >> PAGE_SHIFT;
/// How long nobody must have written before the log starts over.
const QUIET: Duration = Duration::from_secs(2);
/// A log shorter than this, 4 MiB, is left as it is.
const WORTH_STARTING_OVER: u32 = 4 << 20 >> PAGE_SHIFT;
/// A log longer than this, 64 MiB, starts over even while somebody writes.
const MUST_START_OVER: u32 = 64 << 20 >> PAGE_SHIFT;
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_millis(250);
const TRIES: u32 = 100;
const PIN_CACHE_KIB: i32 = -64;

/// What the writer tells the thread.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    signal: Mutex<Signal>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Signal {
    commits: u64,
    pages: u32,
    wake_at_commits: u64,
    wake_at_pages: u32,
    reclaim: bool,
    stop: bool,
    /// What a flush failed with. From then on it is not known what is on the disk.
    broken: Option<String>,
}

impl Signal {
    fn due(&self) -> bool {
        self.stop || self.reclaim || self.commits >= self.wake_at_commits || self.pages >= self.wake_at_pages
    }
}

impl Gauge {
    /// Called inside each commit with the length of the log.
    pub(crate) fn committed(&self, pages: u32) {
        let mut signal = self.lock();
        signal.commits += 1;
        signal.pages = pages;
        if signal.due() {
            self.bell.notify_one();
        }
    }

    /// The disk is full: starting the log over makes room that is already ours.
    pub(crate) fn reclaim(&self) {
        self.lock().reclaim = true;
        self.bell.notify_one();
    }

    /// Why nothing is to be promised at the moment: the disk did not take what it was given.
    pub(crate) fn broken(&self) -> Option<String> {
        self.lock().broken.clone()
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.bell.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Signal> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one of the marks, or for the time to pass.
    fn wait(&self, commits: u64, pages: u32, time: Option<Duration>) -> Woken {
        let mut signal = self.lock();
        signal.wake_at_commits = commits;
        signal.wake_at_pages = pages;
        while !signal.due() {
            signal = match time {
                None => self.bell.wait(signal).unwrap_or_else(PoisonError::into_inner),
                Some(time) => {
                    let (signal, timeout) = self
                        .bell
                        .wait_timeout_while(signal, time, |signal| !signal.due())
                        .unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() {
                        return Woken::ByTime;
                    }
                    signal
                }
            };
        }
        // Until the next wait the bell need not ring.
        signal.wake_at_commits = u64::MAX;
        signal.wake_at_pages = u32::MAX;
        match (signal.stop, std::mem::take(&mut signal.reclaim)) {
            (true, _) => Woken::ToStop,
            (false, true) => Woken::ToReclaim,
            (false, false) => Woken::ByCommits,
        }
    }

    fn commits_and_pages(&self) -> (u64, u32) {
        let signal = self.lock();
        (signal.commits, signal.pages)
    }
}

enum Woken {
    ByCommits,
    ByTime,
    ToReclaim,
    ToStop,
}

/// The running thread; ends when dropped.
pub(crate) struct Checkpointer {
    gauge: Arc<Gauge>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(crate) fn start(path: &Path, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let gauge = Arc::clone(&shared.gauge);
        let mut folder = Folder::new(path, shared)?;
        let thread = std::thread::Builder::new()
            .name("isle-checkpoint".to_owned())
            .spawn(move || folder.run())
            .map_err(|error| StoreError::io("start a thread for", path, error))?;
        Ok(Self { gauge, thread: Some(thread) })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.gauge.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpointing thread panicked");
        }
    }
}

struct Folder {
    shared: Arc<Shared>,
    /// In a read transaction, except for moments under the writer's lock.
    pinned: Connection,
    /// Not in a transaction.
    free: Connection,
    folded_commits: u64,
    folded_pages: u32,
}

impl Folder {
    fn new(path: &Path, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let pinned = connect_further(path)?;
        let free = connect_further(path)?;
        for connection in [&pinned, &free] {
            connection.pragma_update(None, "cache_size", PIN_CACHE_KIB)?;
        }
        let mut folder = Self { shared, pinned, free, folded_commits: 0, folded_pages: 0 };
        folder.start_over()?;
        Ok(folder)
    }

    fn run(&mut self) {
        loop {
            let idle = (self.folded_pages >= WORTH_STARTING_OVER).then_some(QUIET);
            let woken = if self.shared.gauge.broken().is_some() {
                // The kernel tells of a failed flush once and forgets what it could not write. Only a log
                // that starts over, from a database that was written and flushed anew, is to be relied on.
                Woken::ToReclaim
            } else {
                self.shared.gauge.wait(self.folded_commits + 1, u32::MAX, idle)
            };
            let outcome = match woken {
                Woken::ToStop => return,
                Woken::ByTime | Woken::ToReclaim => self.start_over(),
                Woken::ByCommits => {
                    let mark = self.folded_pages.saturating_add(FLUSH_PAGES);
                    match self.shared.gauge.wait(u64::MAX, mark, Some(FLUSH_AFTER)) {
                        Woken::ToStop => return,
                        Woken::ToReclaim => self.start_over(),
                        Woken::ByCommits | Woken::ByTime => self.fold_or_start_over(),
                    }
                }
            };
            let broken = match &outcome {
                Err(StoreError::Broken { reason }) => Some(reason.clone()),
                Ok(()) | Err(_) => None,
            };
            self.shared.gauge.lock().broken = broken;
            if let Err(error) = outcome {
                // The commits are in the log; what is late is their way into the database.
                tracing::warn!(%error, "could not checkpoint the state database");
                if let Woken::ToStop = self.shared.gauge.wait(u64::MAX, u32::MAX, Some(PAUSE)) {
                    return;
                }
            }
        }
    }

    fn fold_or_start_over(&mut self) -> Result<(), StoreError> {
        self.fold()?;
        if self.folded_pages >= MUST_START_OVER { self.start_over() } else { Ok(()) }
    }

    /// Moves the pin to the newest commit and folds everything up to it into the database. There is a
    /// commit since the last fold, so the pin holds a place in the log and not the database itself,
    /// which would be in the way.
    fn fold(&mut self) -> Result<(), StoreError> {
        let (commits, pages) = self.shared.gauge.commits_and_pages();
        pin(&self.free)?;
        std::mem::swap(&mut self.pinned, &mut self.free);
        unpin(&self.free)?;
        checkpoint(&self.free)?;
        self.folded_commits = commits;
        self.folded_pages = pages;
        Ok(())
    }

    /// Folds everything and writes the first frame of a new log. Writers wait meanwhile, for one flush
    /// when nothing is left to fold.
    fn start_over(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        if shared.gauge.commits_and_pages().0 > self.folded_commits && self.folded_commits > 0 {
            self.fold()?;
        }
        let writer = shared.writer();
        unpin(&self.pinned)?;
        checkpoint(&self.free)?;
        let mark = writer
            .connection
            .prepare_cached(
                "INSERT INTO facts (key, value) VALUES ('log_started', '1')
                 ON CONFLICT (key) DO UPDATE SET value = value + 1",
            )?
            .execute([]);
        pin(&self.pinned)?;
        mark?;
        (self.folded_commits, self.folded_pages) = shared.gauge.commits_and_pages();
        Ok(())
    }
}

/// A passive checkpoint waits for nobody, not even for a writer in the moment of publishing a commit.
fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    for _ in 1..TRIES {
        match connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::PASSIVE) {
            Ok(_) => return Ok(()),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                std::thread::yield_now();
            }
            Err(error) => return Err(error),
        }
    }
    connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::PASSIVE).map(|_| ())
}

fn pin(connection: &Connection) -> rusqlite::Result<()> {
    // One that failed half way may have left its transaction open.
    unpin(connection)?;
    connection.prepare_cached("BEGIN")?.execute([])?;
    // The transaction takes its place in the log at its first read.
    connection.prepare_cached("SELECT count(*) FROM audit_head")?.query_row([], |_| Ok(()))
}

fn unpin(connection: &Connection) -> rusqlite::Result<()> {
    if connection.is_autocommit() {
        return Ok(());
    }
    connection.prepare_cached("COMMIT")?.execute([]).map(|_| ())
}
