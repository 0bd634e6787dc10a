//! The life of sandboxes: create, find, replace, pause, extend, expire, destroy.
//!
//! Owns what is to be wiped ([`Wipes`]), the counters of the sweeper, and the watch over agents. The sandboxes
//! themselves are in the [`Fleet`], a table that many read and only this service (and recovery, at a start)
//! changes.
//!
//! Invariants:
//! - Intent is on record before anything exists, and removal is on record before anything is removed, so that a
//!   daemon that starts later can undo or finish whatever was cut short.
//! - Whoever makes or ends the sandbox of an address holds the lock of that address ([`Fleet::gate`]); finding
//!   one that exists takes a shared lock for a hash look-up and nothing else.
//! - A sandbox is handed to callers only after its record says `running`; one that is being removed is handed
//!   to no caller.
//! - A child ends before its parent; a wipe that was begun is finished before the name can be used again.
//!
//! Who calls: runs (`ensure_as`, `make_one_shot`), file operations (`ensure`, `looked_at`), the operations on
//! sandboxes, children (`bring_up`), recovery. What it calls: backends, the agent of each sandbox, journal,
//! notifier, metrics; network and secrets when a sandbox is connected to or gone. Runs that end with their
//! sandbox are found in the table of runs, and told why.
//!
//! The one call upwards: a sandbox with a control socket has to be listened to ([`ControlSockets`]), by the
//! service that can run commands in children. That one is set once while the engine is built.

use std::sync::{Arc, OnceLock, RwLock, Weak};

use super::choose::{choose, offers, unknown_backend};
use super::spawn_counts::SpawnCounts;
use super::sweep::{Sweeper, Swept};
use super::wipes::Wipes;
use super::{Fleet, Sandbox};
use crate::agent::Attention;
use crate::base::{Settings, Tasks};
use crate::engine::EngineConfig;
use crate::events::Notifier;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::network::{Network, Ports};
use crate::run::LiveRuns;
use crate::secrets::Secrets;
use crate::variables::Variables;
use isle_core::Result;
use isle_core::backend::{Backend, BackendName, Offer, SandboxSpec};

/// Listens to sandboxes that may spawn children.
pub(crate) trait ControlSockets: Send + Sync {
    /// Listens for as long as the connection of this sandbox lasts; nothing when it has no control socket.
    fn listen(self: Arc<Self>, sandbox: &Arc<Sandbox>);
}

/// The backends of an engine, and what they offer on this host.
pub(crate) struct Backends {
    all: Vec<Arc<dyn Backend>>,
    offers: RwLock<Vec<(Arc<dyn Backend>, Offer)>>,
}

impl Backends {
    pub(crate) fn new(all: Vec<Arc<dyn Backend>>) -> Self {
        Self { offers: RwLock::new(offers(&all)), all }
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Arc<dyn Backend>] {
        &self.all
    }

    /// Refuses names that none of them has.
    pub(crate) fn all_known<'a>(&self, mut names: impl Iterator<Item = &'a BackendName>) -> Result<()> {
        let is_unknown = |name: &&BackendName| !self.all.iter().any(|backend| backend.name() == **name);
        names.find(is_unknown).map_or(Ok(()), |name| Err(unknown_backend(name, &self.all)))
    }

    /// What they offered when that was last asked.
    pub(crate) fn offers(&self) -> Vec<(Arc<dyn Backend>, Offer)> {
        crate::read(&self.offers).clone()
    }

    /// The backend for a spec. What the host offers is asked once, and again before refusing.
    pub(crate) fn for_spec(&self, spec: &SandboxSpec) -> Result<Arc<dyn Backend>> {
        if let Ok(backend) = choose(&crate::read(&self.offers), spec) {
            return Ok(backend);
        }
        let fresh = offers(&self.all);
        let chosen = choose(&fresh, spec);
        *crate::write(&self.offers) = fresh;
        chosen
    }
}

/// What the sandboxes are built on.
pub(crate) struct SandboxesParts {
    pub(crate) settings: Arc<Settings>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) backends: Arc<Backends>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) runs: Arc<LiveRuns>,
    pub(crate) spawn_counts: Arc<SpawnCounts>,
    pub(crate) variables: Arc<Variables>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) network: Arc<Network>,
    pub(crate) ports: Arc<Ports>,
}

/// See the module.
pub(crate) struct Sandboxes {
    pub(super) config: Arc<EngineConfig>,
    pub(super) settings: Arc<Settings>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) journal: Arc<Journal>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) backends: Arc<Backends>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) runs: Arc<LiveRuns>,
    pub(super) spawn_counts: Arc<SpawnCounts>,
    pub(super) variables: Arc<Variables>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) network: Arc<Network>,
    pub(super) ports: Arc<Ports>,
    /// Names whose workspace is to go.
    pub(super) wipes: Wipes,
    pub(super) sweeper: Sweeper,
    /// Wakes the watch over agents.
    pub(super) attention: Arc<Attention>,
    control_sockets: OnceLock<Weak<dyn ControlSockets>>,
}

impl Sandboxes {
    pub(crate) fn new(parts: SandboxesParts) -> Self {
        Self {
            config: Arc::clone(parts.settings.started_with()),
            settings: parts.settings,
            tasks: parts.tasks,
            journal: parts.journal,
            notifier: parts.notifier,
            metrics: parts.metrics,
            backends: parts.backends,
            fleet: parts.fleet,
            runs: parts.runs,
            spawn_counts: parts.spawn_counts,
            variables: parts.variables,
            secrets: parts.secrets,
            network: parts.network,
            ports: parts.ports,
            wipes: Wipes::default(),
            sweeper: Sweeper::default(),
            attention: Arc::default(),
            control_sockets: OnceLock::new(),
        }
    }

    /// Who listens to control sockets; said once, before there is a sandbox.
    pub(crate) fn control_by(&self, sockets: Weak<dyn ControlSockets>) {
        // A second time cannot happen and would change nothing.
        self.control_sockets.set(sockets).ok();
    }

    pub(super) fn listen_to_control(&self, sandbox: &Arc<Sandbox>) {
        if let Some(sockets) = self.control_sockets.get().and_then(Weak::upgrade) {
            sockets.listen(sandbox);
        }
    }

    /// What the sweeper has done since the start.
    pub(crate) fn swept(&self) -> Swept {
        self.sweeper.counts()
    }

    /// Names whose workspace is to go.
    pub(crate) fn wipes(&self) -> &Wipes {
        &self.wipes
    }
}
