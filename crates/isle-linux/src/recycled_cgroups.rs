//! Cgroups of one-shots, recycled: creating and removing cgroups is the most expensive part of a one-shot, so
//! those of a removed one-shot are used for the next. Only empty ones are: otherwise they are removed, and
//! what is in them is killed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use isle_core::backend::{Lifetime, Limits};
use isle_core::values::SandboxId;
use isle_core::{Error, Result};

use super::cgroup::{Cgroups, Counters};
use super::{Inner, failed};

/// More than are ever needed at once.
const MOST: usize = 64;

/// The cgroups of one one-shot.
#[derive(Debug)]
pub(super) struct Lease {
    /// What they are named after: the first sandbox that had them.
    pub(super) resource: SandboxId,
    /// What a process enters them by.
    pub(super) entrances: Vec<OwnedFd>,
    /// Where is counted what the limits did.
    pub(super) counters: Arc<Counters>,
    /// Where the kernel says how many processes are in them.
    population: Option<File>,
    /// What they hold now; `None` when that is not certain.
    limits: Mutex<Option<Limits>>,
}

impl Lease {
    fn is_empty(&self) -> bool {
        let mut buffer = [0u8; 32];
        let Some(population) = &self.population else { return false };
        population.read_at(&mut buffer, 0).is_ok_and(|count| buffer[..count].trim_ascii() == b"0")
    }

    /// Has them hold these limits. Most one-shots want the same, and then there is nothing to write.
    pub(super) fn hold(&self, cgroups: &Cgroups, limits: &Limits) -> io::Result<()> {
        let mut held = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref() == Some(limits) {
            return Ok(());
        }
        *held = None;
        cgroups.set_limits(self.resource.as_str(), limits)?;
        *held = Some(limits.clone());
        Ok(())
    }
}

/// The cgroups that are free.
#[derive(Debug, Default)]
pub(super) struct RecycledCgroups {
    free: Mutex<Vec<Lease>>,
}

/// Takes cgroups with these limits, used before or new.
pub(super) async fn take(inner: &Arc<Inner>, id: &SandboxId, limits: &Limits) -> Result<Lease> {
    let spare = inner.recycled_cgroups.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
    if let Some(spare) = spare {
        match spare.hold(&inner.cgroups, limits) {
            Ok(()) => return Ok(spare),
            Err(error) => {
                tracing::warn!(%error, "could not set the limits of recycled cgroups; removing them");
                remove(inner, &spare.resource).await?;
            }
        }
    }
    let (inner, id, limits) = (inner.clone(), id.clone(), limits.clone());
    // On a thread that may wait for the kernel.
    tokio::task::spawn_blocking(move || make(&inner, id, &limits)).await.map_err(Error::internal)?
}

fn make(inner: &Inner, id: SandboxId, limits: &Limits) -> Result<Lease> {
    let entrances = inner
        .cgroups
        .create(id.as_str(), limits, Lifetime::OneShot)
        .map_err(|error| failed("create the sandbox's cgroups", error))?;
    Ok(Lease {
        entrances,
        counters: Arc::new(inner.cgroups.counters(id.as_str())),
        population: inner.cgroups.population(id.as_str()),
        limits: Mutex::new(Some(limits.clone())),
        resource: id,
    })
}

/// Gives back the cgroups of a sandbox that has ended.
pub(super) async fn give_back(inner: &Inner, lease: Arc<Lease>) -> Result<()> {
    let lease = match Arc::try_unwrap(lease) {
        Ok(lease) if lease.is_empty() => lease,
        Ok(lease) => return remove(inner, &lease.resource).await,
        Err(lease) => return remove(inner, &lease.resource).await,
    };
    {
        let mut free = inner.recycled_cgroups.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MOST {
            free.push(lease);
            return Ok(());
        }
    }
    remove(inner, &lease.resource).await
}

/// Removes all of them.
pub(super) async fn drain(inner: &Inner) {
    let all =
        std::mem::take(&mut *inner.recycled_cgroups.free.lock().unwrap_or_else(PoisonError::into_inner));
    for lease in all {
        if let Err(error) = remove(inner, &lease.resource).await {
            tracing::warn!(%error, "could not remove cgroups; the next start removes them");
        }
    }
}

/// Removes the cgroups named after a sandbox.
pub(super) async fn remove(inner: &Inner, resource: &SandboxId) -> Result<()> {
    inner
        .cgroups
        .remove(resource.as_str())
        .await
        .map_err(|error| failed("remove the sandbox's cgroups", error))
}
