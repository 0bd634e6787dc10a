//! The sandboxes this daemon holds, by id.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use isle_core::Result;
use isle_core::backend::{DiskStops, Tier};
use isle_core::values::SandboxId;
use tokio::io::unix::AsyncFd;

use super::cgroup::Counters;
use super::recycled_cgroups::Lease;
use super::{Inner, failed};

/// A sandbox that lives.
#[derive(Debug, Clone)]
pub(super) struct Holding {
    /// Its first process.
    pub(super) process: Arc<OwnedFd>,
    pub(super) tier: Tier,
    /// Which ids its users are.
    pub(super) slot: u32,
    /// Whether the slot belongs to its volume and stays reserved.
    pub(super) slot_stays: bool,
    /// What its cgroups are named after: a ready sandbox was named before it was given away.
    pub(super) resource: SandboxId,
    /// Where the kernel counts what its limits did to it; read at every run.
    pub(super) counters: Arc<Counters>,
    /// How often it was stopped for the size of its files, and resumed: odd while it is stopped.
    pub(super) disk_stops: Arc<AtomicU64>,
    /// Bytes of its files without a name.
    pub(super) unlinked: Arc<AtomicU64>,
    /// The cgroups of a one-shot, which another may use after it.
    pub(super) lease: Option<Arc<Lease>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Alive {
    by_id: Mutex<HashMap<SandboxId, Holding>>,
}

impl Alive {
    pub(super) fn insert(&self, id: &SandboxId, holding: Holding) {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), holding);
    }

    pub(super) fn get(&self, id: &SandboxId) -> Option<Holding> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(super) fn remove(&self, id: &SandboxId) -> Option<Holding> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    /// The first process of a sandbox.
    pub(super) fn process(&self, id: &SandboxId) -> Option<Arc<OwnedFd>> {
        self.by_id
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(id)
            .map(|holding| holding.process.clone())
    }

    /// Where is counted what its limits did to it.
    pub(super) fn counters(&self, id: &SandboxId) -> Option<Arc<Counters>> {
        Some(self.by_id.lock().unwrap_or_else(PoisonError::into_inner).get(id)?.counters.clone())
    }

    /// Notes whether it is stopped for the size of its files.
    pub(super) fn set_stopped(&self, id: &SandboxId, stopped: bool) {
        if let Some(holding) = self.by_id.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            let changed = |changes: u64| ((changes % 2 == 1) != stopped).then_some(changes + 1);
            holding.disk_stops.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).ok();
        }
    }

    /// How often it was, and whether it is.
    pub(super) fn disk_stops(&self, id: &SandboxId) -> DiskStops {
        let by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = by_id.get(id).map_or(0, |holding| holding.disk_stops.load(Ordering::Acquire));
        DiskStops { count: changes.div_ceil(2), now: changes % 2 == 1 }
    }

    /// Notes how much its files without a name take, when the watch looked last.
    pub(super) fn set_unlinked(&self, id: &SandboxId, bytes: u64) {
        if let Some(holding) = self.by_id.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            holding.unlinked.store(bytes, Ordering::Release);
        }
    }

    /// How much that was.
    pub(super) fn unlinked(&self, id: &SandboxId) -> u64 {
        let by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        by_id.get(id).map_or(0, |holding| holding.unlinked.load(Ordering::Acquire))
    }

    /// What the cgroups of a sandbox are named after.
    pub(super) fn resource(&self, id: &SandboxId) -> SandboxId {
        let by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        by_id.get(id).map_or_else(|| id.clone(), |holding| holding.resource.clone())
    }
}

/// How long an agent among the host's processes may take to end its runs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends a sandbox by its first process and waits until that is gone. Killing the first process of a
/// pid namespace kills all of it; one among the host's processes is asked to end the others first.
pub(super) async fn end_sandbox(tier: Tier, process: &OwnedFd) -> io::Result<()> {
    if tier == Tier::Process
        && rustix::process::pidfd_send_signal(process, rustix::process::Signal::TERM).is_ok()
    {
        // Too late is no error: it is killed then, and its supervisors end the runs by themselves.
        tokio::time::timeout(PATIENCE, ended(process)).await.ok();
    }
    end_process(process).await
}

/// Kills everything in a sandbox without waiting: its first process, and its cgroups where that is not the
/// first process of a pid namespace.
pub(super) fn kill(inner: &Inner, id: &SandboxId) -> Result<()> {
    let Some(holding) = inner.alive.get(id) else { return Ok(()) };
    match rustix::process::pidfd_send_signal(&*holding.process, rustix::process::Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(failed("kill the sandbox", error)),
    }
    inner.cgroups.kill(holding.resource.as_str());
    Ok(())
}

/// How long the kernel may take to end a killed process.
const DYING: Duration = Duration::from_secs(30);

/// Kills a process and waits until it is gone.
pub(super) async fn end_process(process: &OwnedFd) -> io::Result<()> {
    match rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL) {
        Ok(()) => {}
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    tokio::time::timeout(DYING, ended(process))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "a killed process did not exit"))?
}

/// Waits until a process is gone.
async fn ended(process: &OwnedFd) -> io::Result<()> {
    let copy = process.as_fd().try_clone_to_owned()?;
    // SAFETY: the OwnedFd keeps its descriptor for the life of the AsyncFd.
    let watched = unsafe { AsyncFd::register(copy) }.map_err(|error| io::Error::other(error.to_string()))?;
    // A pidfd becomes readable when its process has ended.
    watched.readable().await.map(drop)
}
