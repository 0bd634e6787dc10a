//! Removing a sandbox, and sweeping up what belongs to none.

use std::sync::Arc;

use isle_engine::Result;
use isle_engine::backend::Keep;
use isle_engine::values::SandboxId;

use super::record::Records;
use super::{Inner, alive, failed, reconnect};

/// Kills what runs, removes what is left. The record goes last, so that a failure on the way is
/// found again.
pub(super) async fn destroy(inner: &Arc<Inner>, id: &SandboxId, keep: Keep) -> Result<()> {
    let mut resource = id.clone();
    if let Some(holding) = inner.alive.remove(id) {
        alive::end_process(&holding.process).await.map_err(|error| failed("end the sandbox", error))?;
        if !holding.slot_stays {
            inner.ids.release(holding.slot);
        }
        resource = holding.resource;
    } else if let Some(process) = reconnect::find_process(inner, id).await {
        alive::end_process(&process).await.map_err(|error| failed("end the sandbox", error))?;
    }
    remove_cgroups(inner, &resource).await?;
    let record = inner.records.read(id);
    remains(inner, id).await?;
    if let (Some(record), Keep::Nothing) = (record, keep) {
        inner.fork_server().await?.remove(&Records::volume_name(&record.volume)).await?;
        inner.ids.release(record.slot);
    }
    Ok(())
}

async fn remove_cgroups(inner: &Inner, id: &SandboxId) -> Result<()> {
    inner.cgroups.remove(id.as_str()).await.map_err(|error| failed("remove the sandbox's cgroups", error))
}

/// Removes what a sandbox that does not run leaves on the host, but not its volume.
pub(super) async fn remains(inner: &Arc<Inner>, id: &SandboxId) -> Result<()> {
    remove_cgroups(inner, id).await?;
    inner.records.remove_socket(id).map_err(|error| failed("remove the sandbox's socket", error))?;
    if let Some(record) = inner.records.read(id) {
        // In an image, a layer that nobody uses is removed when the image is next mounted.
        let layer = format!("{}/data/layers/{id}", Records::volume_name(&record.volume));
        if inner.records.state().join(&layer).exists() {
            inner.fork_server().await?.remove(&layer).await?;
        }
    }
    inner.records.remove(id)
}

/// Removes records, sockets and cgroups that belong to none of `known`.
pub(super) async fn sweep(inner: &Arc<Inner>, known: &[SandboxId]) -> Result<Vec<String>> {
    let mut strangers: Vec<SandboxId> = inner.records.list();
    strangers.extend(inner.records.list_sockets());
    strangers.extend(inner.cgroups.list().iter().filter_map(|name| name.parse().ok()));
    strangers.sort();
    strangers.dedup();
    strangers.retain(|id| !known.contains(id));
    let mut removed = Vec::new();
    for id in strangers {
        destroy(inner, &id, Keep::Workspace).await?;
        removed.push(format!("sandbox {id} that nobody knew"));
    }
    Ok(removed)
}
