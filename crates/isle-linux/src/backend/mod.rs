//! The host's half of the native backend, in the daemon. What it leaves on the host is named after
//! the sandbox (a record, a socket, cgroups) or its volume, so that any later daemon can find it.

mod alive;
mod cgroup;
mod create;
mod destroy;
mod embedded;
mod facts;
mod fork_server;
mod ids;
mod link;
mod open;
mod place;
mod pool;
mod reconnect;
mod record;
mod report;
mod spare;
mod volume;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use isle_engine::backend::{Backend, Created, Fact, Found, Keep, Offer, SandboxSpec, Tier, Usage};
use isle_engine::values::{Address, SandboxId};
use isle_engine::{Code, Error, Result};
use isle_fail::Point;

use alive::Alive;
use cgroup::Cgroups;
use fork_server::{ForkServer, Mode};
use ids::{IdKind, IdPool};
use place::Places;
use pool::Pool;
use record::Records;

pub use embedded::attack_program;
pub use facts::probe;

/// Where the native backend keeps its things.
#[derive(Debug, Clone)]
pub struct NativeConfig {
    /// For what must survive a reboot; mode 0700.
    pub state_dir: PathBuf,
    /// For sockets; mode 0700.
    pub runtime_dir: PathBuf,
    /// How many fresh one-shot sandboxes are kept ready.
    pub pool_size: usize,
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
    spares: spare::Spares,
    places: Places,
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
        let cgroups = cgroup::detect(&records.instance());
        let ids = IdPool::new(match facts.subordinate_ids {
            _ if facts.root => IdKind::Root,
            Some(count) => IdKind::Subordinate { count },
            None => IdKind::Subordinate { count: 0 },
        });
        for slot in records.reserved_slots() {
            ids.take(Some(slot));
        }
        let places = Places::new(facts.root, &records.state(), &records.instance());
        let inner = Arc::new(Inner {
            pool: Pool::new(config.pool_size),
            spares: spare::Spares::default(),
            facts,
            cgroups,
            ids,
            records,
            alive: Alive::default(),
            places,
            fork_server: Mutex::new(None),
            plain_fork_server: Mutex::new(None),
            starting: tokio::sync::Mutex::new(()),
        });
        Ok(Arc::new(Self { inner }))
    }
}

impl Inner {
    /// The fork server of sandboxes with namespaces, started anew when it is gone.
    async fn fork_server(&self) -> Result<Arc<ForkServer>> {
        self.started(&self.fork_server, Mode::Namespaces).await
    }

    /// The fork server of sandboxes among the host's processes, started anew when it is gone.
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
            // It may be on its way out still; nothing of it stays.
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

    fn offers(&self) -> Vec<Offer> {
        report::offers(&self.facts, &self.cgroups)
    }
}

impl Backend for NativeBackend {
    fn name(&self) -> &'static str {
        "native"
    }

    fn offers(&self) -> Vec<Offer> {
        self.inner.offers()
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

    fn wipe<'a>(&'a self, volume: &'a Address) -> BoxFuture<'a, Result<bool>> {
        Box::pin(destroy::wipe(&self.inner, volume))
    }

    fn usage<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<Usage>> {
        Box::pin(async move {
            let resource = self.inner.alive.resource(id);
            let mut usage = self.inner.cgroups.usage(resource.as_str());
            let record = self.inner.records.read(id);
            let private =
                self.inner.places.usage(&resource, record.as_ref().map(|record| &record.volume)).await;
            usage.disk_bytes = match private {
                Some(bytes) => Some(bytes),
                None => volume::usage(&self.inner, id).await,
            };
            Ok(usage)
        })
    }

    fn oom_kills(&self, id: &SandboxId) -> Option<u64> {
        self.inner.alive.counters(id)?.oom_kills()
    }

    fn refused_forks(&self, id: &SandboxId) -> Option<u64> {
        self.inner.alive.counters(id)?.refused_forks()
    }

    fn stopped_for_disk(&self, id: &SandboxId) -> bool {
        self.inner.alive.is_stopped(id)
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

    fn strays(&self, known: &[SandboxId]) -> Vec<(SandboxId, SandboxSpec)> {
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
                spare::drain(&self.inner).await;
            };
            let ended = tokio::time::timeout(within, letting_go).await;
            if ended.is_err() {
                tracing::warn!("ready sandboxes were not all removed in time; the next start removes them");
            }
            for kept in [&self.inner.fork_server, &self.inner.plain_fork_server] {
                if let Some(server) = living(kept) {
                    server.stop();
                }
            }
            self.inner.cgroups.remove_base();
            self.inner.places.remove_base();
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

/// Names a failed step of the host's side. What the host has run out of is told apart: a caller can do
/// something about it.
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
    Error::new(Code::DiskBroken, message).next("see to the host's disk; its kernel log tells more")
}

/// A failpoint whose error is one of ours.
fn failpoint(point: Point) -> Result<()> {
    isle_fail::fail(point).map_err(|error| failed("go on", error))
}
