//! Live syncs: a directory of a sandbox follows one of the host for as long as both are there.
//!
//! Owns the syncs in progress, and the last few that ended, so that they can be listed. Each has a task: a full
//! copy first, then a round whenever the host reports a change (`follow`, `round`). The host wins: what changes
//! there is sent, what is removed there is removed, and what exists only in the sandbox is left alone.
//!
//! Invariants: a sync belongs to one incarnation of its sandbox, counts as use of it, and ends with it; it never
//! brings a sandbox back. It is on record, and the next daemon resumes it if its sandbox still runs (`resume`).
//! Two syncs never write to the same directory.
//!
//! Called by the operations `sync_start`, `sync_stop` and `sync_list`, and once at a start. Calls the agent of
//! the sandbox, the journal and the notifier.

mod follow;
mod resume;
mod round;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) use isle_api::ops::sync::{SyncShape, SyncState};
use isle_trees::{Selection, Selector};
use isle_wire::GuestUser;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::base::Tasks;
use crate::context::CallContext;
use crate::engine::EngineConfig;
use crate::events::{EventKind, Notifier};
use crate::files::carry::{HostPlace, PACE, progress};
use crate::journal::Journal;
use crate::lock;
use crate::sandbox::{Fleet, Sandbox, SandboxState};
use isle_api::timestamp;
use isle_core::values::{Address, GuestPath, Namespace};
use isle_core::{Code, Error, Result};

/// Syncs of all sandboxes together.
const MOST: usize = 64;
/// Ended ones that are still listed.
const REMEMBERED: usize = 20;

#[derive(Debug)]
struct SyncStatus {
    state: SyncState,
    rounds: u64,
    files: u64,
    bytes: u64,
    removed: u64,
    changed_ms: Option<i64>,
    note: Option<String>,
}

/// One sync.
#[derive(Debug)]
pub(crate) struct LiveSync {
    id: String,
    sandbox: Arc<Sandbox>,
    path: GuestPath,
    user: GuestUser,
    host: HostPlace,
    selection: Selection,
    poll: bool,
    started_ms: i64,
    progress: Mutex<SyncStatus>,
    /// Bytes on their way or there, of all rounds.
    carried: Arc<AtomicU64>,
    stop: CancellationToken,
}

impl LiveSync {
    pub(crate) fn shape(&self) -> SyncShape {
        let progress = lock(&self.progress);
        SyncShape {
            sync: self.id.clone(),
            sandbox: self.sandbox.name.clone(),
            path: self.path.absolute(),
            host_path: self.host.shown().display().to_string(),
            state: progress.state,
            rounds: progress.rounds,
            files_sent: progress.files,
            bytes_sent: progress.bytes,
            removed: progress.removed,
            started_at: timestamp(self.started_ms),
            last_change_at: progress.changed_ms.map(timestamp),
            note: progress.note.clone(),
        }
    }

    fn is_over(&self) -> bool {
        lock(&self.progress).state == SyncState::Ended
    }

    /// Tells how far the first copy is for as long as somebody waits.
    async fn tell_progress(&self, context: &CallContext) -> Infallible {
        loop {
            tokio::time::sleep(PACE).await;
            if let Some(sink) = &context.progress {
                sink(progress("copying in", self.carried.load(Ordering::Relaxed), None));
            }
        }
    }

    /// It never brings its sandbox back: when that is gone, it is over.
    fn sandbox_is_gone(&self) -> bool {
        self.sandbox.state() != SandboxState::Running
    }
}

/// See the module.
pub(crate) struct Syncs {
    config: Arc<EngineConfig>,
    tasks: Arc<Tasks>,
    journal: Arc<Journal>,
    notifier: Arc<Notifier>,
    fleet: Arc<Fleet>,
    all: Mutex<Vec<Arc<LiveSync>>>,
}

impl Syncs {
    pub(crate) fn new(
        config: Arc<EngineConfig>,
        tasks: Arc<Tasks>,
        journal: Arc<Journal>,
        notifier: Arc<Notifier>,
        fleet: Arc<Fleet>,
    ) -> Self {
        Self { config, tasks, journal, notifier, fleet, all: Mutex::default() }
    }

    /// Those of a namespace, oldest first.
    pub(crate) fn list(&self, namespace: &Namespace) -> Vec<SyncShape> {
        let all = lock(&self.all);
        all.iter().filter(|job| job.sandbox.namespace == *namespace).map(|job| job.shape()).collect()
    }

    /// Those of a sandbox.
    pub(crate) fn of(&self, Address { namespace, name }: &Address) -> Vec<SyncShape> {
        self.list(namespace).into_iter().filter(|sync| sync.sandbox == *name).collect()
    }

    /// Ends one of a namespace.
    pub(crate) async fn stop(&self, namespace: &Namespace, id: &str) -> Result<(Arc<Sandbox>, SyncShape)> {
        let theirs = |job: &&Arc<LiveSync>| job.sandbox.namespace == *namespace;
        let found = lock(&self.all).iter().filter(theirs).find(|job| job.id == id).cloned();
        let Some(job) = found else {
            let known: Vec<String> =
                lock(&self.all).iter().filter(theirs).map(|job| job.id.clone()).collect();
            return Err(Error::new(Code::SyncNotFound, format!("there is no sync {id:?}"))
                .detail("syncs", known)
                .next("sync_list shows those there are"));
        };
        job.stop.cancel();
        while !job.is_over() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        lock(&self.all).retain(|other| other.id != id);
        Ok((job.sandbox.clone(), job.shape()))
    }
}

/// What a sync is to do.
pub(crate) struct SyncPlan {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) path: GuestPath,
    pub(crate) user: GuestUser,
    pub(crate) host: HostPlace,
    pub(crate) selection: Selection,
    /// Look for changes instead of being told of them.
    pub(crate) poll: bool,
}

impl Syncs {
    /// Starts a sync and waits for its first full copy, at most as long as calls wait.
    pub(crate) async fn start(
        self: &Arc<Self>,
        context: &CallContext,
        plan: SyncPlan,
    ) -> Result<Arc<LiveSync>> {
        let mut random = [0u8; 4];
        getrandom::fill(&mut random).map_err(Error::internal)?;
        let letters: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let (job, first) = self.begin(format!("sync-{letters}"), isle_core::clock::wall_clock_ms(), plan)?;
        let told = job.tell_progress(context);
        let first = tokio::time::timeout(self.config.wait.0, first);
        let first = tokio::select! {
            first = first => first,
            never = told => match never {},
        };
        match first {
            Ok(Ok(Ok(()))) | Err(_) => Ok(job),
            Ok(Ok(Err(error))) => {
                lock(&self.all).retain(|other| other.id != job.id);
                Err(error)
            }
            Ok(Err(_)) => Err(Error::internal("the sync ended before its first copy")),
        }
    }

    /// Begins to follow; what comes back says when there is a whole copy.
    fn begin(
        self: &Arc<Self>,
        id: String,
        started_ms: i64,
        plan: SyncPlan,
    ) -> Result<(Arc<LiveSync>, oneshot::Receiver<Result<()>>)> {
        let selector = Selector::new(&plan.selection).map_err(|error| {
            Error::new(Code::InvalidArgument, error.to_string())
                .next("write patterns as in a .gitignore file")
        })?;
        let job = Arc::new(LiveSync {
            id,
            sandbox: plan.sandbox,
            path: plan.path,
            user: plan.user,
            host: plan.host,
            selection: plan.selection,
            poll: plan.poll,
            started_ms,
            progress: Mutex::new(SyncStatus {
                state: SyncState::Starting,
                rounds: 0,
                files: 0,
                bytes: 0,
                removed: 0,
                changed_ms: None,
                note: None,
            }),
            carried: Arc::default(),
            stop: CancellationToken::new(),
        });
        self.admit(&job)?;
        let (sender, first) = oneshot::channel();
        let (following, leaving, syncs) = (job.clone(), self.tasks.leaving().clone(), Arc::downgrade(self));
        tokio::spawn(async move {
            let tell = |kind| {
                if let Some(syncs) = syncs.upgrade() {
                    syncs.notifier.sync(kind, &following.sandbox.namespace, &following.shape());
                }
            };
            let begun = || tell(EventKind::SyncStarted);
            if follow::follow(following.clone(), selector, leaving.clone(), sender, begun).await {
                tell(EventKind::SyncStopped);
            }
            // One that ends with the engine goes on with the next.
            if !leaving.is_cancelled()
                && let Some(syncs) = syncs.upgrade()
            {
                syncs.journal.forget_sync(&following.id);
            }
        });
        Ok((job, first))
    }

    fn admit(&self, job: &Arc<LiveSync>) -> Result<()> {
        let mut all = lock(&self.all);
        let living: Vec<&Arc<LiveSync>> = all.iter().filter(|other| !other.is_over()).collect();
        if living.len() >= MOST {
            return Err(Error::new(Code::LimitReached, format!("there are {MOST} syncs already"))
                .next("end some with sync_stop"));
        }
        let same = |other: &&&Arc<LiveSync>| {
            other.sandbox.id == job.sandbox.id && other.path.absolute() == job.path.absolute()
        };
        if let Some(other) = living.iter().find(same) {
            return Err(Error::new(
                Code::AlreadyExists,
                format!("{} of {} follows the host already", job.path.absolute(), job.sandbox.name),
            )
            .detail("sync", other.id.clone())
            .next("choose another path, or end the sync in `details` with sync_stop"));
        }
        let over: Vec<String> =
            all.iter().filter(|other| other.is_over()).map(|other| other.id.clone()).collect();
        let surplus = (over.len() + 1).saturating_sub(REMEMBERED);
        all.retain(|other| !over[..surplus.min(over.len())].contains(&other.id));
        all.push(job.clone());
        Ok(())
    }
}
