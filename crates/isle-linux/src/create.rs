//! Making a sandbox.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use isle_core::backend::{Created, Keep, Lifetime, OPEN_FILES, SandboxSpec, Tier};
use isle_core::values::{Address, SandboxId};
use isle_core::{Code, Error, Result};
use isle_fail::Point;
use isle_wire::{FdStream, Welcome};

use super::alive::{self, Holding};
use super::fork_server::ForkServer;
use super::record::Record;
use super::recycled_cgroups::{self, Lease};
use super::{Inner, capabilities, destroy, failed, failpoint, link, pool, report, volume, watch};
use isle_setup::request::{Directories, Extent, MakeRequest, MakeTier, Volume, outside};
use isle_setup::{SANDBOX_ID, template};

/// How long the set-up of a sandbox may take: a thousand times what it usually does.
const SET_UP: Duration = Duration::from_secs(20);

/// Descriptors of the daemon that sandboxes leave free for callers.
const RESERVED_FILES: u64 = 64;

/// The slot of a sandbox that has no ids of its own.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// A sandbox that was created and not yet handed to a caller.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) link: FdStream,
    pub(super) holding: Holding,
    pub(super) welcome: Welcome,
}

/// Makes a sandbox, or takes a ready one.
pub(super) async fn create(inner: &Arc<Inner>, id: &SandboxId, spec: &SandboxSpec) -> Result<Created> {
    capabilities::of(&inner.facts, spec.tier, spec.lifetime).check(spec)?;
    let fresh = match pool::take(inner, spec) {
        Some(fresh) => fresh,
        None => make(inner, id, spec).await?,
    };
    finish(inner, id, spec, fresh)
}

/// Hands a fresh sandbox over.
fn finish(inner: &Arc<Inner>, id: &SandboxId, spec: &SandboxSpec, fresh: Fresh) -> Result<Created> {
    let containment = report::of_sandbox(&inner.facts, &inner.cgroups, spec, &fresh.welcome);
    inner.alive.insert(id, fresh.holding);
    failpoint(Point::NativeHandedOver)?;
    look_after_volume(inner, id, spec);
    let anchor = serde_json::json!({ "backend": crate::NAME });
    let passed = link::passed(&fresh.link);
    Ok(Created { link: Box::new(fresh.link), passed, containment, welcome: Some(fresh.welcome), anchor })
}

/// A volume that no quota holds is watched.
pub(super) fn look_after_volume(inner: &Arc<Inner>, id: &SandboxId, spec: &SandboxSpec) {
    if let Some(volume) = &spec.volume
        && spec.tier == Tier::Container
        && inner.records.volume_path(volume).join("data").exists()
    {
        watch::start(inner, id, volume.clone(), spec.limits.disk);
    }
}

/// Makes a sandbox from nothing; leaves nothing when it fails.
pub(super) async fn make(inner: &Arc<Inner>, id: &SandboxId, spec: &SandboxSpec) -> Result<Fresh> {
    let made = try_make_or_undo(inner, id, spec).await;
    match &made {
        // The fork server died under the request; the next one has not done anything for it yet.
        Err(error) if error.code == Code::SandboxFailed => try_make_or_undo(inner, id, spec).await,
        _ => made,
    }
}

async fn try_make_or_undo(inner: &Arc<Inner>, id: &SandboxId, spec: &SandboxSpec) -> Result<Fresh> {
    let made = try_make(inner, id, spec).await;
    if made.is_err() {
        // Not only what remains: a fork server that died may have made the process before.
        destroy::destroy(inner, id, Keep::WhatWasBefore).await.ok();
    }
    made
}

async fn try_make(inner: &Arc<Inner>, id: &SandboxId, spec: &SandboxSpec) -> Result<Fresh> {
    let fork_server = match spec.tier {
        Tier::Container => inner.fork_server().await?,
        Tier::Process => inner.plain_fork_server().await?,
    };
    let mut slot = Slot::take(inner, spec)?;
    let named = spec.lifetime == Lifetime::Named;
    let volume = spec.volume.as_ref().filter(|_| named);
    if let Some(volume) = volume {
        slot.write_down(id, volume, spec)?;
    }
    let prepared = match (spec.tier, volume) {
        (Tier::Container, Some(volume)) => volume::prepare(inner, volume, spec.limits.disk).await?,
        (Tier::Container, None) | (Tier::Process, _) => volume::Prepared::memory(),
    };
    let directories = match spec.tier {
        Tier::Container => None,
        Tier::Process => {
            let owner = outside(&slot.ids(spec.tier), SANDBOX_ID);
            Some(inner.process_dirs.prepare(id, volume, owner, spec.control)?)
        }
    };
    let lease = match (spec.tier, spec.lifetime) {
        (Tier::Container, Lifetime::OneShot) => Some(recycled_cgroups::take(inner, id, &spec.limits).await?),
        (Tier::Process, _) | (_, Lifetime::Named) => None,
    };
    if spec.tier == Tier::Process {
        failpoint(Point::NativePlaceMade)?;
    }
    let has_image = prepared.loop_device.is_some();
    let made = make_process(inner, id, spec, slot, fork_server, prepared, directories, lease.as_ref()).await;
    let made = made
        .map_err(|error| if has_image { volume::own_limit_reached(error, spec.limits.disk) } else { error });
    match (made, lease) {
        (Ok(mut fresh), lease) => {
            fresh.holding.lease = lease.map(Arc::new);
            Ok(fresh)
        }
        (Err(error), Some(lease)) => {
            recycled_cgroups::remove(inner, &lease.resource).await.ok();
            Err(error)
        }
        (Err(error), None) => Err(error),
    }
}

/// The process itself, in cgroups of its own or leased ones.
#[expect(clippy::too_many_arguments, reason = "one caller, which has prepared each of them")]
async fn make_process(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
    slot: Slot<'_>,
    fork_server: Arc<ForkServer>,
    prepared: volume::Prepared,
    directories: Option<Directories>,
    lease: Option<&Lease>,
) -> Result<Fresh> {
    let named = spec.lifetime == Lifetime::Named;
    let own_cgroups = match lease {
        Some(_) => {
            failpoint(Point::NativeLeased)?;
            Vec::new()
        }
        None => {
            let made = make_cgroups(inner, id, spec).await?;
            failpoint(Point::NativeCgroupsMade)?;
            made
        }
    };
    let cgroups = lease.map_or(&own_cgroups, |lease| &lease.entrances);
    let (ours, theirs) = StdUnixStream::pair().map_err(|error| failed("create a socket pair", error))?;
    leave_descriptors(&ours)?;
    let listener = named
        .then(|| inner.records.bind_socket(id))
        .transpose()
        .map_err(|error| failed("bind the sandbox's socket", error))?;
    if named {
        failpoint(Point::NativeSocketBound)?;
    }
    let theirs: OwnedFd = theirs.into();
    let mut descriptors: Vec<BorrowedFd<'_>> = vec![theirs.as_fd()];
    descriptors.extend(listener.as_ref().map(AsFd::as_fd));
    descriptors.extend(cgroups.iter().map(AsFd::as_fd));
    descriptors.extend(prepared.loop_device.as_ref().map(AsFd::as_fd));
    let request = MakeRequest { directories, ..request(inner, id, spec, &slot, &prepared) };
    let process = fork_server.make(request, &descriptors).await?;
    drop(theirs);
    let holding = Holding {
        process: Arc::new(process.pidfd),
        tier: spec.tier,
        slot: slot.number,
        slot_stays: slot.stays,
        resource: lease.map_or_else(|| id.clone(), |lease| lease.resource.clone()),
        counters: lease
            .map_or_else(|| Arc::new(inner.cgroups.counters(id.as_str())), |lease| lease.counters.clone()),
        disk_stops: Arc::default(),
        unlinked: Arc::default(),
        lease: None,
    };
    let greeted = async {
        failpoint(Point::NativeProcessMade)?;
        let mut link = FdStream::socket_receiving(ours)
            .map_err(|error| failed("open the stream to the agent", error))?;
        let told = tokio::time::timeout(SET_UP, link::read_preamble(&mut link)).await;
        let welcome = told.unwrap_or_else(|_| Err(stuck()))?;
        failpoint(Point::NativeGreeted)?;
        Ok((link, welcome))
    };
    match greeted.await {
        Ok((link, welcome)) => {
            slot.keep();
            Ok(Fresh { link, holding, welcome })
        }
        Err(error) => {
            alive::end_sandbox(holding.tier, &holding.process).await.ok();
            Err(error)
        }
    }
}

fn stuck() -> Error {
    Error::new(
        Code::BackendUnavailable,
        format!("setting up the sandbox timed out after {} s", SET_UP.as_secs()),
    )
    .next("the host is overloaded, or one of its file systems hangs; retry later")
}

/// Rejects a sandbox that would take the last descriptors: without them no call could be answered, and
/// nothing could be destroyed. New descriptors get the lowest free number, so the newest one shows the use.
fn leave_descriptors(newest: &StdUnixStream) -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let number = u64::try_from(newest.as_raw_fd()).unwrap_or(0);
    if number.saturating_add(RESERVED_FILES) < limit {
        return Ok(());
    }
    let message = format!("the daemon's limit of {limit} open files is nearly reached");
    Err(Error::new(Code::LimitReached, message)
        .next("destroy sandboxes that are no longer needed, or raise the daemon's limit on open files"))
}

/// Makes the sandbox's cgroups, on a thread that may wait for the kernel.
async fn make_cgroups(inner: &Arc<Inner>, id: &SandboxId, spec: &SandboxSpec) -> Result<Vec<OwnedFd>> {
    let (inner, id, limits, lifetime) = (inner.clone(), id.clone(), spec.limits.clone(), spec.lifetime);
    tokio::task::spawn_blocking(move || inner.cgroups.create(id.as_str(), &limits, lifetime))
        .await
        .map_err(Error::internal)?
        .map_err(|error| failed("create the sandbox's cgroups", error))
}

fn request(
    inner: &Inner,
    id: &SandboxId,
    spec: &SandboxSpec,
    slot: &Slot<'_>,
    prepared: &volume::Prepared,
) -> MakeRequest {
    let holds = inner.cgroups.holds();
    let ids = slot.ids(spec.tier);
    // Without ids of its own, the limit would count what else the daemon's user runs.
    let counts_processes = !holds.pids && !ids.is_empty();
    let tmpfs_bytes = if matches!(prepared.source, Volume::Memory) { spec.limits.disk.0 } else { 64 << 20 };
    MakeRequest {
        ticket: 0,
        tier: match spec.tier {
            Tier::Container => MakeTier::Container,
            Tier::Process => MakeTier::Process,
        },
        ids,
        volume: prepared.source.clone(),
        layer: id.as_str().to_owned(),
        tmpfs_bytes,
        // One inode per 4 KiB, as disks have, within reason.
        tmpfs_inodes: (tmpfs_bytes / 4096).clamp(1024, 262_144),
        has_listener: spec.lifetime == Lifetime::Named,
        rlimit_processes: if counts_processes { u64::from(spec.limits.pids) } else { 0 },
        rlimit_memory: if holds.memory { 0 } else { spec.limits.memory.0 },
        system_directories: template::system_directories(),
        rlimit_files: OPEN_FILES,
        rlimit_file_size: match spec.tier {
            Tier::Container => 0,
            Tier::Process => spec.limits.disk.0,
        },
        directories: None,
        watch_memory: if holds.memory { 0 } else { spec.limits.memory.0 },
        watch_cpus: if holds.cpu { 0 } else { thousandths(spec.limits.cpus) },
        watch_processes: if holds.pids || counts_processes { 0 } else { u64::from(spec.limits.pids) },
        control: spec.control,
        fixed_etc: spec.fixed_etc,
    }
}

/// CPUs that have to be kept to; none when the host has no more.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a positive range")]
fn thousandths(cpus: f64) -> u64 {
    let host = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpus >= f64::from(u32::try_from(host).unwrap_or(u32::MAX)) {
        return 0;
    }
    (cpus * 1000.0).round().clamp(1.0, 1e9) as u64
}

/// A slot that is given back unless kept. One that belongs to a volume stays reserved either way, and
/// so does the one that is none: among an ordinary user's processes there are no ids to give.
struct Slot<'a> {
    inner: &'a Inner,
    number: u32,
    stays: bool,
    kept: bool,
    /// Whether the volume it belongs to is being made with this sandbox.
    fresh: bool,
}

impl<'a> Slot<'a> {
    fn take(inner: &'a Inner, spec: &SandboxSpec) -> Result<Self> {
        let full = || {
            Error::new(Code::LimitReached, "no user ids are left for another sandbox")
                .next("destroy sandboxes that are no longer needed, with `--wipe` to free their workspaces")
        };
        let fresh = spec.volume.as_ref().is_some_and(|volume| {
            !inner.records.volume_path(volume).exists() && !inner.process_dirs.volume_path(volume).exists()
        });
        if !inner.has_ids(spec.tier) {
            return Ok(Self { inner, number: NO_SLOT, stays: true, kept: false, fresh });
        }
        if let Some(number) = spec.volume.as_ref().and_then(|volume| inner.records.volume_slot(volume)) {
            return Ok(Self { inner, number, stays: true, kept: false, fresh });
        }
        // Until it is written down that it belongs to the volume, it is given back by dropping this.
        let number = inner.ids.take(None).ok_or_else(full)?;
        Ok(Self { inner, number, stays: false, kept: false, fresh })
    }

    /// Writes down whose it is: first the sandbox's record, by which everything else is found again,
    /// then the volume's number.
    fn write_down(&mut self, id: &SandboxId, volume: &Address, spec: &SandboxSpec) -> Result<()> {
        let record = Record {
            volume: volume.clone(),
            slot: self.number,
            tier: spec.tier,
            fresh: self.fresh,
            confirmed: false,
            spec: Some(spec.clone()),
        };
        self.inner.records.write(id, &record)?;
        let reserved = self.stays;
        // From here on removing the sandbox gives it back, if its volume goes too.
        self.stays = true;
        failpoint(Point::NativeRecordWritten)?;
        if !reserved {
            let set = self.inner.records.set_volume_slot(volume, self.number);
            set.map_err(|error| failed("reserve ids for the workspace", error))?;
            failpoint(Point::NativeSlotReserved)?;
        }
        Ok(())
    }

    /// The ids of the slot.
    fn ids(&self, tier: Tier) -> Vec<Extent> {
        if self.number == NO_SLOT {
            return Vec::new();
        }
        let all = self.inner.ids.map(self.number);
        match tier {
            Tier::Container => all,
            Tier::Process => self.inner.process_dirs.only_id(&all).into_iter().collect(),
        }
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if !self.kept && !self.stays {
            self.inner.ids.release(self.number);
        }
    }
}
