//! Listings on separate connections and threads. The listings of one caller wait only for one another: each
//! namespace has a queue and at most one thread, the threads serve the queues round-robin, and the operator
//! has a dedicated thread. A listing that takes too long is interrupted, so that it blocks neither others nor
//! the checkpoint of the log.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::connection::connect_reader;
use crate::error::StoreError;

/// Threads for namespaces.
const SHARED_THREADS: usize = 2;
/// Maximum number of waiting listings of one caller.
const MOST_WAITING: usize = 64;
/// Timeout of a listing. One page takes far less.
const LONGEST: Duration = Duration::from_millis(250);
/// SQLite virtual machine steps between two checks of the clock.
const STEPS: i32 = 2_000;
/// Niceness of these threads, below those that run commands.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Whose listing it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReadShare {
    /// The operator's, which never waits for tenants.
    Operator,
    /// A tenant's.
    Namespace(String),
}

type Work = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Default)]
struct Queues {
    waiting: HashMap<ReadShare, VecDeque<Work>>,
    /// Namespaces with work, in the order in which they are served.
    turns: VecDeque<ReadShare>,
    /// Namespaces that a thread is serving.
    busy: HashSet<ReadShare>,
    stop: bool,
}

impl Queues {
    /// The next piece of work for a thread.
    fn next(&mut self, reserved: bool) -> Option<(ReadShare, Work)> {
        let is_mine = |share: &ReadShare| (*share == ReadShare::Operator) == reserved;
        let place = self.turns.iter().position(|share| is_mine(share) && !self.busy.contains(share))?;
        let share = self.turns.remove(place)?;
        let queue = self.waiting.get_mut(&share)?;
        let work = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&share);
        } else {
            self.turns.push_back(share.clone());
        }
        self.busy.insert(share.clone());
        Some((share, work))
    }
}

#[derive(Default)]
struct WorkQueue {
    queues: Mutex<Queues>,
    wakeup: Condvar,
}

impl WorkQueue {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, reserved: bool) -> Option<(ReadShare, Work)> {
        let mut queues = self.lock();
        loop {
            if queues.stop {
                return None;
            }
            if let Some(next) = queues.next(reserved) {
                return Some(next);
            }
            queues = self.wakeup.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, share: &ReadShare) {
        self.lock().busy.remove(share);
        self.wakeup.notify_all();
    }
}

/// The threads; stopped when dropped.
pub(crate) struct Readers {
    queue: Arc<WorkQueue>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(path: &Path) -> Result<Self, StoreError> {
        let mut readers = Self { queue: Arc::default(), threads: Vec::new() };
        for number in 0..=SHARED_THREADS {
            let reserved = number == SHARED_THREADS;
            let (queue, mut connection) = (Arc::clone(&readers.queue), connect_reader(path)?);
            let thread = std::thread::Builder::new()
                .name("isle-reader".to_owned())
                .spawn(move || {
                    lower_priority();
                    while let Some((share, work)) = queue.wait(reserved) {
                        serve(&mut connection, work);
                        queue.done(&share);
                    }
                })
                .map_err(|error| StoreError::io("start a thread for", path, error))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Queues work; fails if too much of the same caller is already waiting.
    pub(crate) fn submit(&self, share: ReadShare, work: Work) -> Result<(), StoreError> {
        let mut queues = self.queue.lock();
        let queue = queues.waiting.entry(share.clone()).or_default();
        if queue.len() >= MOST_WAITING {
            return Err(StoreError::TooManyListings { most: MOST_WAITING });
        }
        let is_first = queue.is_empty();
        queue.push_back(work);
        if is_first {
            queues.turns.push_back(share);
        }
        drop(queues);
        self.queue.wakeup.notify_all();
        Ok(())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.lock().stop = true;
        self.queue.wakeup.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reader thread panicked");
            }
        }
    }
}

/// Runs one listing. A panic ends that listing, not the thread.
fn serve(connection: &mut Connection, work: Work) {
    let end = Instant::now() + LONGEST;
    if let Err(error) = connection.progress_handler(STEPS, Some(move || Instant::now() > end)) {
        tracing::warn!(%error, "a listing could not be given a deadline");
        return;
    }
    let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(connection)));
    if worked.is_err() {
        tracing::error!("a listing panicked");
    }
    if !connection.is_autocommit() {
        drop(connection.execute_batch("ROLLBACK"));
    }
}

/// Lowers the priority of the thread: commands come first.
pub(crate) fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS) {
        tracing::debug!(%error, "could not lower the priority of a reader thread");
    }
}
