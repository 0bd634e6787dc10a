//! The native backend: tiers `container` and `process` from namespaces, overlayfs, cgroups, seccomp and
//! Landlock. This is its part in the daemon; what happens inside a sandbox's first process is in
//! `isle-setup`. Everything it creates on the host (a record, a socket, cgroups) is named after the sandbox
//! or its volume, so that a later daemon can find it.

mod alive;
mod attacks;
mod capabilities;
mod cgroup;
mod create;
mod destroy;
mod facts;
mod fork_server;
mod ids;
mod keyring;
mod link;
mod pool;
mod process_dirs;
mod reconnect;
mod record;
mod recycled_cgroups;
mod report;
mod subordinate;
mod unlinked;
mod volume;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, ready};
use isle_core::backend::{
    Backend, BackendName, Capabilities, Created, DiskStops, Fact, Found, Keep, Offer, SandboxSpec, Tier,
    Usage,
};
use isle_core::values::{Address, SandboxId};
use isle_core::{Code, Error, Result};
use isle_fail::Point;

use alive::Alive;
use cgroup::Cgroups;
use fork_server::{ForkServer, Mode};
use ids::{IdKind, IdPool};
use pool::Pool;
use process_dirs::ProcessDirs;
use record::Records;
use recycled_cgroups::RecycledCgroups;

/// The name of this backend.
pub const NAME: BackendName = BackendName::of("native");

/// How long measuring the files of a sandbox may take; after that its usage is unknown.
const MEASURED: Duration = Duration::from_secs(10);

pub use facts::probe;
pub use keyring::KernelKeyring;

/// Where the native backend keeps its state.
#[derive(Debug, Clone)]
pub struct NativeConfig {
    /// For what must survive a reboot; mode 0700.
    pub state_dir: PathBuf,
    /// For sockets; mode 0700. It belongs to this identity alone.
    pub runtime_dir: PathBuf,
    /// The identity of the state directory. Everything outside of it is named after this.
    pub identity: Identity,
    /// How many fresh one-shot sandboxes are kept ready.
    pub pool_size: usize,
}

/// Which daemon creates cgroups and directories on this host. Only those with its name are swept, killed or
/// removed.
#[derive(Debug, Clone)]
pub struct Identity {
    /// 32 hexadecimal digits that no other state directory has.
    pub id: String,
    /// The inode of the state directory.
    pub inode: u64,
    /// The id before this one, of a directory that was copied or moved.
    pub previous: Option<String>,
    /// Where an earlier version, which knew no identity, has the sockets of sandboxes that may still run.
    pub earlier_runtime_dir: Option<PathBuf>,
}

impl Identity {
    /// What cgroups and directories outside the state directory are called.
    fn name(&self) -> String {
        format!("isle-{}", self.id)
    }

    /// A number that differs between daemons, within `0..limit`.
    fn number(&self, limit: u32) -> u32 {
        let digits = self.id.get(..8).unwrap_or_default();
        u32::from_str_radix(digits, 16).unwrap_or(0) % limit
    }
}

/// Tiers `container` and `process` on this host.
#[derive(Debug)]
pub struct NativeBackend {
    inner: Arc<Inner>,
}

/// What all parts share.
#[derive(Debug)]
struct Inner {
    facts: facts::Facts,
    cgroups: Cgroups,
    ids: IdPool,
    records: Records,
    alive: Alive,
    pool: Pool,
    recycled_cgroups: RecycledCgroups,
    process_dirs: ProcessDirs,
    fork_server: Mutex<Option<Arc<ForkServer>>>,
    /// Started when the first sandbox of tier `process` is.
    plain_fork_server: Mutex<Option<Arc<ForkServer>>>,
    /// Held while a fork server is being started.
    starting: tokio::sync::Mutex<()>,
}

impl NativeBackend {
    /// Looks at the host, starts the fork server where namespaces can be had.
    pub async fn new(config: NativeConfig) -> Result<Arc<Self>> {
        let facts = facts::Facts::gather();
        let records = Records::open(&config)?;
        let name = config.identity.name();
        let mut cgroups = cgroup::detect(&name);
        let earlier = config.identity.earlier_runtime_dir.as_ref().map(|_| records.earlier_name());
        if let Some(earlier) = &earlier {
            cgroups.adopt(&name, earlier);
        }
        let ids = IdPool::new(match facts.subordinate_ids {
            _ if facts.root => IdKind::Root { start: config.identity.number(ids::START_SLOTS) },
            Some(count) => IdKind::Subordinate { count },
            None => IdKind::Subordinate { count: 0 },
        });
        for slot in records.reserved_slots() {
            ids.take(Some(slot));
        }
        let process_dirs =
            ProcessDirs::open(facts.root, &records.state(), &config.identity, earlier.as_deref());
        let inner = Arc::new(Inner {
            pool: Pool::new(config.pool_size),
            recycled_cgroups: RecycledCgroups::default(),
            facts,
            cgroups,
            ids,
            records,
            alive: Alive::default(),
            process_dirs,
            fork_server: Mutex::new(None),
            plain_fork_server: Mutex::new(None),
            starting: tokio::sync::Mutex::new(()),
        });
        Ok(Arc::new(Self { inner }))
    }
}

impl Inner {
    /// The fork server of sandboxes with namespaces, restarted when it exited.
    async fn fork_server(&self) -> Result<Arc<ForkServer>> {
        self.started(&self.fork_server, Mode::Namespaces).await
    }

    /// The fork server of sandboxes without namespaces, restarted when it exited.
    async fn plain_fork_server(&self) -> Result<Arc<ForkServer>> {
        self.started(&self.plain_fork_server, Mode::Plain).await
    }

    async fn started(&self, kept: &Mutex<Option<Arc<ForkServer>>>, mode: Mode) -> Result<Arc<ForkServer>> {
        if let Some(server) = living(kept) {
            return Ok(server);
        }
        let _starting = self.starting.lock().await;
        if let Some(server) = living(kept) {
            return Ok(server);
        }
        let old = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(old) = old {
            // It may still be exiting; make sure that it is gone.
            old.stop();
        }
        let server = Arc::new(ForkServer::start(mode, &self.records.state(), &self.records.scratch()).await?);
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.clone());
        failpoint(Point::NativeForkServerStarted)?;
        Ok(server)
    }

    /// Whether sandboxes of a tier get host ids of their own.
    fn has_ids(&self, tier: Tier) -> bool {
        match tier {
            Tier::Container => true,
            Tier::Process => self.facts.root,
        }
    }
}

impl Backend for NativeBackend {
    fn name(&self) -> BackendName {
        NAME
    }

    fn offers(&self) -> Vec<Offer> {
        report::offers(&self.inner.facts, &self.inner.cgroups)
    }

    fn capabilities(&self, spec: &SandboxSpec) -> Capabilities {
        capabilities::of(&self.inner.facts, spec.tier, spec.lifetime)
    }

    fn create<'a>(&'a self, id: &'a SandboxId, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Created>> {
        Box::pin(create::create(&self.inner, id, spec))
    }

    fn reconnect<'a>(
        &'a self,
        id: &'a SandboxId,
        spec: &'a SandboxSpec,
        _anchor: &'a serde_json::Value,
    ) -> BoxFuture<'a, Result<Found>> {
        Box::pin(reconnect::reconnect(&self.inner, id, spec))
    }

    fn destroy<'a>(&'a self, id: &'a SandboxId, keep: Keep) -> BoxFuture<'a, Result<()>> {
        Box::pin(destroy::destroy(&self.inner, id, keep))
    }

    fn kill(&self, id: &SandboxId) -> Result<()> {
        alive::kill(&self.inner, id)
    }

    fn wipe<'a>(&'a self, volume: &'a Address) -> BoxFuture<'a, Result<bool>> {
        Box::pin(destroy::wipe(&self.inner, volume))
    }

    fn usage<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<Usage>> {
        Box::pin(async move {
            let resource = self.inner.alive.resource(id);
            let mut usage = self.inner.cgroups.usage(resource.as_str());
            let record = self.inner.records.read(id);
            let private =
                self.inner.process_dirs.usage(&resource, record.as_ref().map(|record| &record.volume)).await;
            usage.disk_bytes = match private {
                Some(bytes) => Some(bytes),
                None => volume::usage(&self.inner, id).await,
            };
            let scarce = volume::scarce(&self.inner, id);
            (usage.disk_inodes, usage.disk_inodes_limit) = scarce.inodes.unzip();
            usage.disk_note = scarce.note.map(str::to_owned);
            Ok(usage)
        })
    }

    // These three are read for every command: one read of an open file of the kernel, which never blocks, so
    // the future is ready when it is returned.
    fn oom_kills<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Option<u64>> {
        Box::pin(ready(self.inner.alive.counters(id).and_then(|counters| counters.oom_kills())))
    }

    fn refused_forks<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Option<u64>> {
        Box::pin(ready(self.inner.alive.counters(id).and_then(|counters| counters.refused_forks())))
    }

    fn disk_stops<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, DiskStops> {
        Box::pin(ready(self.inner.alive.disk_stops(id)))
    }

    fn sweep<'a>(&'a self, known: &'a [SandboxId]) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(destroy::sweep(&self.inner, known))
    }

    fn confirm(&self, id: &SandboxId) -> Result<()> {
        match self.inner.records.read(id) {
            Some(record) => self.inner.records.write(id, &record::Record { confirmed: true, ..record }),
            None => Err(failed("find the record of a sandbox", io::Error::from(io::ErrorKind::NotFound))),
        }
    }

    fn is_confirmed(&self, id: &SandboxId) -> bool {
        self.inner.records.read(id).is_some_and(|record| record.confirmed)
    }

    fn unrecorded(&self, known: &[SandboxId]) -> Vec<(SandboxId, SandboxSpec)> {
        let ids = self.inner.records.list().into_iter().filter(|id| !known.contains(id));
        ids.filter_map(|id| Some((id.clone(), self.inner.records.read(&id)?.spec?))).collect()
    }

    fn warm(&self, spec: &SandboxSpec) {
        pool::warm(&self.inner, spec);
    }

    fn shutdown(&self, within: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let letting_go = async {
                pool::drain(&self.inner).await;
                recycled_cgroups::drain(&self.inner).await;
            };
            let ended = tokio::time::timeout(within, letting_go).await;
            if ended.is_err() {
                tracing::warn!("removing pooled sandboxes timed out; the next start removes the rest");
            }
            for kept in [&self.inner.fork_server, &self.inner.plain_fork_server] {
                if let Some(server) = living(kept) {
                    server.stop();
                }
            }
            self.inner.cgroups.remove_base();
            self.inner.process_dirs.remove_base();
        })
    }

    fn facts(&self) -> BTreeMap<String, Vec<Fact>> {
        self.inner.facts.sections(&self.inner.cgroups)
    }
}

/// A fork server that has not gone.
fn living(kept: &Mutex<Option<Arc<ForkServer>>>) -> Option<Arc<ForkServer>> {
    let current = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
    current.filter(|server| server.is_alive())
}

/// The error of a failed step on the host. Exhausted resources and broken disks get codes of their own: a
/// caller can do something about them.
fn failed(doing: &str, error: impl Into<io::Error>) -> Error {
    let error = error.into();
    let message = format!("could not {doing}: {error}");
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            Error::new(Code::NoSpace, message).next("free disk space on the host")
        }
        Some(errno) if is_of_a_broken_disk(errno) => disk_broken(message),
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EUSERS) => {
            Error::new(Code::LimitReached, message)
                .next("destroy sandboxes that are no longer needed, or raise the host's limits")
        }
        None if error.kind() == io::ErrorKind::InvalidData => disk_broken(message),
        _ => Error::internal(message),
    }
}

/// What the kernel says of a disk that fails, and of a file system that is damaged or, because of that,
/// read-only.
fn is_of_a_broken_disk(errno: i32) -> bool {
    matches!(errno, libc::EIO | libc::EUCLEAN | libc::EBADMSG | libc::EROFS)
}

fn disk_broken(message: String) -> Error {
    Error::new(Code::DiskBroken, message).next("check the host's disk; its kernel log has details")
}

/// A failpoint whose error is one of ours.
fn failpoint(point: Point) -> Result<()> {
    isle_fail::fail(point).map_err(|error| failed("continue", error))
}
