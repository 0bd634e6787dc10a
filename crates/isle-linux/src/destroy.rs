//! Removing a sandbox, and sweeping up what belongs to none.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use isle_core::Result;
use isle_core::backend::{Keep, Tier};
use isle_core::values::{Address, SandboxId};
use isle_fail::Point;

use super::cgroup::Cgroups;
use super::create::NO_SLOT;
use super::record::Records;
use super::{Inner, alive, failed, failpoint, pool, reconnect, recycled_cgroups};
use isle_setup::threads;

/// How long a start waits for leftovers to be removed.
const SWEEP: Duration = Duration::from_secs(20);

/// Kills what runs, removes what is left. The record goes last, so that a failure on the way is
/// found again.
pub(super) async fn destroy(inner: &Arc<Inner>, id: &SandboxId, keep: Keep) -> Result<()> {
    let mut resource = id.clone();
    if let Some(holding) = inner.alive.get(id) {
        let ended = alive::end_sandbox(holding.tier, &holding.process).await;
        ended.map_err(|error| failed("end the sandbox", error))?;
        failpoint(Point::NativeEnded)?;
        inner.alive.remove(id);
        if !holding.slot_stays {
            inner.ids.release(holding.slot);
        }
        if let Some(lease) = holding.lease {
            // A one-shot in memory leaves nothing else.
            let given_back = recycled_cgroups::give_back(inner, lease).await;
            pool::one_shot_ended(inner);
            given_back?;
            return failpoint(Point::NativeLeaseReturned);
        }
        resource = holding.resource;
    } else if let Some(process) = reconnect::find_process(inner, id).await {
        let tier = inner.records.read(id).map_or(Tier::Container, |record| record.tier);
        alive::end_sandbox(tier, &process).await.map_err(|error| failed("end the sandbox", error))?;
    }
    if resource != *id {
        remove_place(inner, &resource).await?;
    }
    remove_cgroups(inner, &resource).await?;
    remains(inner, id, keep).await
}

/// Removes a volume that no sandbox uses.
pub(super) async fn wipe(inner: &Arc<Inner>, volume: &Address) -> Result<bool> {
    let known = inner.records.volume_path(volume).exists() || inner.process_dirs.volume_path(volume).exists();
    if known {
        let slot = inner.records.volume_slot(volume).unwrap_or(NO_SLOT);
        remove_volume(inner, volume, slot, Tier::Process).await?;
    }
    Ok(known)
}

/// Removes a volume, whichever tiers used it.
async fn remove_volume(inner: &Arc<Inner>, volume: &Address, slot: u32, tier: Tier) -> Result<()> {
    inner.process_dirs.remove_volume(volume).await?;
    failpoint(Point::NativeWorkspaceRemoved)?;
    let directory = inner.records.volume_path(volume);
    if !directory.exists() {
        // It was never made, or is gone already.
    } else if tier == Tier::Container || directory.join("data").exists() || directory.join("image").exists() {
        inner.fork_server().await?.remove(&Records::volume_name(volume)).await?;
    } else {
        // Only the number of its slot is there.
        fs::remove_dir_all(&directory).map_err(|error| failed("remove the volume", error))?;
    }
    if slot != NO_SLOT {
        inner.ids.release(slot);
    }
    failpoint(Point::NativeVolumeRemoved)
}

/// Removes the private directories of a sandbox. Where no cgroup says who belonged to it, its own
/// host id does.
async fn remove_place(inner: &Inner, id: &SandboxId) -> Result<()> {
    if let (Some(owner), Cgroups::Absent { .. }) = (inner.process_dirs.owner(id), &inner.cgroups) {
        end_processes_of(owner).await;
    }
    inner.process_dirs.remove(id).await
}

/// Kills every process of a host id that belongs to one sandbox alone: the identity of the state directory is
/// part of which id it is.
async fn end_processes_of(owner: u32) {
    let belongs = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let uid = field("Uid:").and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok());
        uid == Some(owner) && threads::living(pid).is_some()
    };
    for _ in 0..500 {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let found: Vec<i32> = pids
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|&pid| belongs(pid))
            .collect();
        if found.is_empty() {
            return;
        }
        for pid in found {
            let process = rustix::process::Pid::from_raw(pid)
                .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok());
            // Looked at again through what cannot become another process.
            if let Some(process) = process.filter(|_| belongs(pid)) {
                rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL).ok();
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn remove_cgroups(inner: &Inner, id: &SandboxId) -> Result<()> {
    inner.cgroups.remove(id.as_str()).await.map_err(|error| failed("remove the sandbox's cgroups", error))
}

/// Removes what a sandbox that does not run leaves on the host.
pub(super) async fn remains(inner: &Arc<Inner>, id: &SandboxId, keep: Keep) -> Result<()> {
    remove_cgroups(inner, id).await?;
    failpoint(Point::NativeCgroupsRemoved)?;
    remove_place(inner, id).await?;
    failpoint(Point::NativePlaceRemoved)?;
    inner.records.remove_socket(id).map_err(|error| failed("remove the sandbox's socket", error))?;
    failpoint(Point::NativeSocketRemoved)?;
    if let Some(record) = inner.records.read(id) {
        let volume_goes = match keep {
            Keep::Nothing => true,
            Keep::Workspace => false,
            Keep::WhatWasBefore => record.fresh,
        };
        if volume_goes {
            remove_volume(inner, &record.volume, record.slot, record.tier).await?;
        }
        // In an image, an unused layer is removed when the image is next mounted.
        let layer = format!("{}/data/layers/{id}", Records::volume_name(&record.volume));
        if inner.records.state().join(&layer).exists() {
            inner.fork_server().await?.remove(&layer).await?;
            failpoint(Point::NativeLayerRemoved)?;
        }
    }
    inner.records.remove(id)?;
    failpoint(Point::NativeRecordRemoved)
}

/// Removes records, sockets, directories and cgroups that belong to none of `known`. All of them carry the
/// identity of this state directory, or are named by its records.
pub(super) async fn sweep(inner: &Arc<Inner>, known: &[SandboxId]) -> Result<Vec<String>> {
    let mut strangers: Vec<SandboxId> = inner.records.list();
    strangers.extend(inner.records.list_sockets());
    if !inner.process_dirs.is_shared() {
        strangers.extend(inner.process_dirs.list());
    }
    strangers.extend(inner.cgroups.list().iter().filter_map(|name| name.parse().ok()));
    strangers.sort();
    strangers.dedup();
    strangers.retain(|id| !known.contains(id));
    let inner = Arc::clone(inner);
    let (sender, mut swept) = tokio::sync::mpsc::unbounded_channel();
    let sweeping = tokio::spawn(async move {
        for id in strangers {
            let gone =
                destroy(&inner, &id, Keep::Workspace).await.and_then(|()| failpoint(Point::RecoverSwept));
            match gone {
                // The receiver is closed when the sweep takes too long.
                Ok(()) => drop(sender.send(format!("sandbox {id}, which has no record"))),
                // One that cannot be removed must not keep the others.
                Err(error) => {
                    tracing::warn!(%id, %error, "could not remove a leftover; the next start retries")
                }
            }
        }
    });
    // A start does not wait for a disk that hangs.
    let in_time = tokio::time::timeout(SWEEP, sweeping).await;
    if in_time.is_err() {
        tracing::warn!("leftovers are still being removed in the background");
    }
    swept.close();
    Ok(std::iter::from_fn(|| swept.try_recv().ok()).collect())
}
