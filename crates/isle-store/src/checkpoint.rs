//! The checkpoint thread, which does every `fsync`. A commit only appends to the write-ahead log; this thread
//! checkpoints the log about a second later, and restarts it when there are no writes.
//!
//! In SQLite the first writer after a complete checkpoint restarts the log, which costs that writer a flush.
//! So the thread always keeps one read transaction open (the *pin*): until it ends the log only grows, and to
//! restart the log the thread writes the first frame itself.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, MAIN_DB};

use crate::connection::{PAGE_SHIFT, connect_further};
use crate::error::StoreError;
use crate::store::Shared;

/// Delay from a commit to its flush.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// Pages of new log that trigger a checkpoint: 4 MiB.
const FLUSH_PAGES: u32 = 4 << 20 >> PAGE_SHIFT;
/// Time without writes before the log is restarted.
const QUIET: Duration = Duration::from_secs(2);
/// A log shorter than this, 4 MiB, is not restarted.
const WORTH_RESTART: u32 = 4 << 20 >> PAGE_SHIFT;
/// A log longer than this, 64 MiB, is restarted even during writes.
const MUST_RESTART: u32 = 64 << 20 >> PAGE_SHIFT;
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_millis(250);
const TRIES: u32 = 100;
const PIN_CACHE_KIB: i32 = -64;

/// What the writer reports to the thread.
#[derive(Debug, Default)]
pub(crate) struct WalMonitor {
    signal: Mutex<Signal>,
    wakeup: Condvar,
}

#[derive(Debug, Default)]
struct Signal {
    commits: u64,
    pages: u32,
    wake_at_commits: u64,
    wake_at_pages: u32,
    reclaim: bool,
    stop: bool,
    /// The error of a failed flush. From then on it is not known what is on the disk.
    broken: Option<String>,
}

impl Signal {
    fn due(&self) -> bool {
        self.stop || self.reclaim || self.commits >= self.wake_at_commits || self.pages >= self.wake_at_pages
    }
}

impl WalMonitor {
    /// Called inside each commit with the length of the log.
    pub(crate) fn committed(&self, pages: u32) {
        let mut signal = self.lock();
        signal.commits += 1;
        signal.pages = pages;
        if signal.due() {
            self.wakeup.notify_one();
        }
    }

    /// The disk is full: restarting the log frees its space.
    pub(crate) fn reclaim(&self) {
        self.lock().reclaim = true;
        self.wakeup.notify_one();
    }

    /// The error of a failed flush, while writes cannot be made durable.
    pub(crate) fn broken(&self) -> Option<String> {
        self.lock().broken.clone()
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.wakeup.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Signal> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one of the thresholds or the timeout.
    fn wait(&self, commits: u64, pages: u32, time: Option<Duration>) -> Woken {
        let mut signal = self.lock();
        signal.wake_at_commits = commits;
        signal.wake_at_pages = pages;
        while !signal.due() {
            signal = match time {
                None => self.wakeup.wait(signal).unwrap_or_else(PoisonError::into_inner),
                Some(time) => {
                    let (signal, timeout) = self
                        .wakeup
                        .wait_timeout_while(signal, time, |signal| !signal.due())
                        .unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() {
                        return Woken::ByTime;
                    }
                    signal
                }
            };
        }
        // No wake-up is needed until the next wait.
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

/// The running thread; stopped when dropped.
pub(crate) struct Checkpointer {
    wal: Arc<WalMonitor>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(crate) fn start(path: &Path, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let wal = Arc::clone(&shared.wal);
        let mut worker = CheckpointWorker::new(path, shared)?;
        let thread = std::thread::Builder::new()
            .name("isle-checkpoint".to_owned())
            .spawn(move || worker.run())
            .map_err(|error| StoreError::io("start a thread for", path, error))?;
        Ok(Self { wal, thread: Some(thread) })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wal.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

struct CheckpointWorker {
    shared: Arc<Shared>,
    /// In a read transaction, except briefly under the writer's lock.
    pinned: Connection,
    /// Not in a transaction.
    free: Connection,
    checkpointed_commits: u64,
    checkpointed_pages: u32,
}

impl CheckpointWorker {
    fn new(path: &Path, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let pinned = connect_further(path)?;
        let free = connect_further(path)?;
        for connection in [&pinned, &free] {
            connection.pragma_update(None, "cache_size", PIN_CACHE_KIB)?;
        }
        let mut worker = Self { shared, pinned, free, checkpointed_commits: 0, checkpointed_pages: 0 };
        worker.restart_log()?;
        Ok(worker)
    }

    fn run(&mut self) {
        loop {
            let idle = (self.checkpointed_pages >= WORTH_RESTART).then_some(QUIET);
            let woken = if self.shared.wal.broken().is_some() {
                // The kernel reports a failed flush once and drops what it could not write. Only a restarted
                // log, after the database was written and flushed again, is reliable.
                Woken::ToReclaim
            } else {
                self.shared.wal.wait(self.checkpointed_commits + 1, u32::MAX, idle)
            };
            let outcome = match woken {
                Woken::ToStop => return,
                Woken::ByTime | Woken::ToReclaim => self.restart_log(),
                Woken::ByCommits => {
                    let mark = self.checkpointed_pages.saturating_add(FLUSH_PAGES);
                    match self.shared.wal.wait(u64::MAX, mark, Some(FLUSH_AFTER)) {
                        Woken::ToStop => return,
                        Woken::ToReclaim => self.restart_log(),
                        Woken::ByCommits | Woken::ByTime => self.checkpoint_or_restart_log(),
                    }
                }
            };
            let broken = match &outcome {
                Err(StoreError::Broken { reason }) => Some(reason.clone()),
                Ok(()) | Err(_) => None,
            };
            self.shared.wal.lock().broken = broken;
            if let Err(error) = outcome {
                // The commits are in the log; only their checkpoint is late.
                tracing::warn!(%error, "could not checkpoint the state database");
                if let Woken::ToStop = self.shared.wal.wait(u64::MAX, u32::MAX, Some(PAUSE)) {
                    return;
                }
            }
        }
    }

    fn checkpoint_or_restart_log(&mut self) -> Result<(), StoreError> {
        self.checkpoint_newest()?;
        if self.checkpointed_pages >= MUST_RESTART { self.restart_log() } else { Ok(()) }
    }

    /// Moves the pin to the newest commit and checkpoints everything up to it. There is a commit since the
    /// last checkpoint, so the pin is in the log and not in the database itself, which would prevent the
    /// checkpoint.
    fn checkpoint_newest(&mut self) -> Result<(), StoreError> {
        let (commits, pages) = self.shared.wal.commits_and_pages();
        pin(&self.free)?;
        std::mem::swap(&mut self.pinned, &mut self.free);
        unpin(&self.free)?;
        checkpoint(&self.free)?;
        self.checkpointed_commits = commits;
        self.checkpointed_pages = pages;
        Ok(())
    }

    /// Checkpoints everything and writes the first frame of a new log. Writers wait meanwhile, for one flush
    /// if everything is already checkpointed.
    fn restart_log(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        if shared.wal.commits_and_pages().0 > self.checkpointed_commits && self.checkpointed_commits > 0 {
            self.checkpoint_newest()?;
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
        (self.checkpointed_commits, self.checkpointed_pages) = shared.wal.commits_and_pages();
        Ok(())
    }
}

/// A passive checkpoint never waits, not even for a writer that is publishing a commit.
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
    // A failed call may have left its transaction open.
    unpin(connection)?;
    connection.prepare_cached("BEGIN")?.execute([])?;
    // The transaction gets its position in the log with its first read.
    connection.prepare_cached("SELECT count(*) FROM audit_head")?.query_row([], |_| Ok(()))
}

fn unpin(connection: &Connection) -> rusqlite::Result<()> {
    if connection.is_autocommit() {
        return Ok(());
    }
    connection.prepare_cached("COMMIT")?.execute([]).map(|_| ())
}
