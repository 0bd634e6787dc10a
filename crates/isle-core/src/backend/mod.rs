//! What a backend must supply: an isolated environment and a byte stream to the agent in it. Everything else
//! (exec, files, terminals) is the same for all of them.

mod capabilities;
mod containment;
mod created;
mod name;
mod spec;
mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::error::Result;
use crate::values::{Address, SandboxId};

pub use capabilities::{
    Capabilities, Connections, DiskLimit, GuestNetwork, GuestRoot, GuestUsers, Images, Pause, Support,
};
pub use containment::{Containment, Fact, Guarantee, GuaranteeStatus, Offer};
pub use created::{Created, Found, Link};
pub use name::BackendName;
pub use spec::{ChildOf, HOST_IMAGE, Lifetime, Limits, OPEN_FILES, SandboxSpec, Tier};
pub use usage::{DiskStops, Usage};

/// A way of isolating sandboxes. Nothing here has a default: a backend that cannot do something says so.
pub trait Backend: Send + Sync + 'static {
    /// Its name, such as `native`. Records of sandboxes contain it.
    fn name(&self) -> BackendName;

    /// What it can offer on this host, probed.
    fn offers(&self) -> Vec<Offer>;

    /// What a sandbox of this spec can do. Known without probing; the same for the life of the sandbox.
    fn capabilities(&self, spec: &SandboxSpec) -> Capabilities;

    /// Creates a sandbox. Everything it leaves on the host is named after `id`, so that [`Backend::destroy`]
    /// can remove it knowing nothing else. When it fails, nothing is left.
    fn create<'a>(&'a self, id: &'a SandboxId, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Created>>;

    /// Finds a sandbox created by an earlier daemon.
    fn reconnect<'a>(
        &'a self,
        id: &'a SandboxId,
        spec: &'a SandboxSpec,
        anchor: &'a serde_json::Value,
    ) -> BoxFuture<'a, Result<Found>>;

    /// Removes a sandbox and everything named after it, killing its processes. Idempotent.
    fn destroy<'a>(&'a self, id: &'a SandboxId, keep: Keep) -> BoxFuture<'a, Result<()>>;

    /// Kills everything in a sandbox at once, without its agent and without waiting. What it left on the
    /// host stays until [`Backend::destroy`].
    fn kill(&self, id: &SandboxId) -> Result<()>;

    /// Removes a volume that was kept when its last sandbox was destroyed and that no sandbox uses now.
    /// Returns whether there was one.
    fn wipe<'a>(&'a self, volume: &'a Address) -> BoxFuture<'a, Result<bool>>;

    /// What it uses.
    fn usage<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<Usage>>;

    /// Processes of a sandbox that the kernel killed for lack of memory so far. `None` where this is not
    /// counted. Read before and after every run: a backend that reads open files returns a ready future.
    fn oom_kills<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Option<u64>>;

    /// Times the kernel denied a sandbox another process or thread for its limit so far. `None` where this is
    /// not counted. Read before every run, as [`Backend::oom_kills`].
    fn refused_forks<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Option<u64>>;

    /// How often a sandbox was stopped because its files exceeded a disk limit that is only watched. Read before
    /// every run, as [`Backend::oom_kills`].
    fn disk_stops<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, DiskStops>;

    /// Removes everything of this backend (of this state directory) that belongs to none of `known`. Called
    /// once at start. Returns what it removed, for the log.
    fn sweep<'a>(&'a self, known: &'a [SandboxId]) -> BoxFuture<'a, Result<Vec<String>>>;

    /// Notes that a named sandbox is recorded as running: from now on it is complete, even if the engine's
    /// record is restored to an earlier state.
    fn confirm(&self, id: &SandboxId) -> Result<()>;

    /// Whether a sandbox was confirmed.
    fn is_confirmed(&self, id: &SandboxId) -> bool;

    /// Named sandboxes of this backend that are none of `known`, with their specs. An engine adopts those
    /// that are alive, so that losing the records never kills a sandbox.
    fn unrecorded(&self, known: &[SandboxId]) -> Vec<(SandboxId, SandboxSpec)>;

    /// Starts keeping sandboxes of this spec ready, where the backend can.
    fn warm(&self, spec: &SandboxSpec);

    /// Stops helpers and removes ready sandboxes, within the time given. Named sandboxes stay.
    fn shutdown(&self, within: Duration) -> BoxFuture<'_, ()>;

    /// Facts for `isle doctor`: section → lines.
    fn facts(&self) -> BTreeMap<String, Vec<Fact>>;
}

/// What destroying keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The workspace volume stays for the next sandbox of that name.
    Workspace,
    /// Nothing stays.
    Nothing,
    /// The volume stays if it is older than the sandbox, which was never handed to a caller.
    WhatWasBefore,
}
