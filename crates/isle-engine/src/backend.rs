//! What a backend must supply: a place, and a byte stream to the agent inside it. Everything else
//! (exec, files, terminals) is the same for all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::Result;
use crate::values::{Address, ByteSize, SandboxId};

/// How strongly a sandbox is isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Tier {
    /// Landlock, seccomp and rlimits in a private directory; shares the host's namespaces.
    Process,
    /// Own namespaces, own root, seccomp, Landlock, cgroup limits.
    Container,
}

impl Tier {
    /// The tier as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Container => "container",
        }
    }
}

/// How long a sandbox is meant to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// For one command; dies with the daemon. Its writable layer is in memory.
    OneShot,
    /// Until it is destroyed; survives the daemon. Its writable layer is on disk.
    Named,
}

/// Files one process of a sandbox may have open, whatever the tier.
pub const OPEN_FILES: u64 = 4096;

/// What a sandbox may use. `None` means the backend's default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Limits {
    /// Memory, tmpfs and page cache included.
    pub memory: ByteSize,
    /// CPUs, such as 0.5 or 2.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u32,
    /// Writable layer and workspace.
    pub disk: ByteSize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: ByteSize::mib(1024), cpus: 2.0, pids: 256, disk: ByteSize::mib(1024) }
    }
}

/// What a sandbox is to be. The same spec gives the same sandbox; its fingerprint is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// How strongly isolated.
    pub tier: Tier,
    /// Which image; `host` is the host's own programs, read-only.
    pub image: String,
    /// What it may use.
    pub limits: Limits,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Name of the workspace volume of a named sandbox: it outlives the sandbox unless destroyed
    /// with [`Keep::Nothing`].
    pub volume: Option<Address>,
    /// Whether less than the tier promises is acceptable where the host cannot do it.
    pub allow_downgrade: bool,
    /// Whether it gets a control socket, to spawn from inside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
    /// Whether `/etc` stays as the image has it: nobody in the sandbox will be its root, and nothing has to
    /// be put there. Such a sandbox is made faster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed_etc: bool,
    /// Whose child it is. Part of the spec, so that no record of it can be had without: a child never
    /// becomes a sandbox of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildOf>,
}

/// Where a child belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildOf {
    /// Itself; its volume is nobody else's and has no name people know.
    pub name: Address,
    /// Its parent.
    pub parent: Address,
    /// The incarnation of its parent: with it the child ends.
    pub parent_id: SandboxId,
    /// The sandbox at the root of the tree.
    pub root: Address,
    /// 1 for a child, 2 for a grandchild.
    pub depth: u8,
    /// When it ends by itself, in milliseconds since 1970.
    pub expires_at_ms: i64,
}

/// One line of a containment report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Guarantee {
    /// Stable key, such as `user_namespace`.
    pub key: String,
    /// `enforced`, `watched` or `missing`.
    pub status: GuaranteeStatus,
    /// How it is enforced, or why it is not.
    pub how: String,
    /// What would make it enforced; empty when it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// Attacks of the containment suite that get through because of it; empty when it is enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<String>,
}

/// Whether a guarantee holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum GuaranteeStatus {
    /// The kernel enforces it.
    Enforced,
    /// Isle watches and reacts, which can be late.
    Watched,
    /// It does not hold.
    Missing,
}

/// What is really enforced for a sandbox, and what is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Containment {
    /// The tier in force.
    pub tier: Tier,
    /// Every guarantee of that tier, in a fixed order.
    pub guarantees: Vec<Guarantee>,
}

/// A byte stream to an agent.
pub trait Link: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Link for T {}

/// A sandbox that exists.
pub struct Created {
    /// The stream to its agent.
    pub link: Box<dyn Link>,
    /// Where sockets arrive that the agent hands over beside that stream.
    pub handed: isle_wire::Inbox,
    /// What is enforced.
    pub containment: Containment,
    /// Who the agent is, when the backend knows already: saves the greeting.
    pub welcome: Option<isle_wire::Welcome>,
    /// Whatever the backend needs to find it again after a restart; opaque to the engine, stored.
    pub anchor: serde_json::Value,
}

impl std::fmt::Debug for Created {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Created").field("containment", &self.containment).finish_non_exhaustive()
    }
}

/// What was found when looking for a sandbox of an earlier daemon.
#[derive(Debug)]
pub enum Found {
    /// It lives.
    Alive(Created),
    /// It is gone; what is left of it can be destroyed.
    Dead,
}

/// What a sandbox uses now, from its cgroup where there is one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Usage {
    /// CPU time so far, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Memory now, in bytes.
    pub memory_bytes: Option<u64>,
    /// Highest memory so far, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Bytes read from disks so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_read_bytes: Option<u64>,
    /// Bytes written to disks so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_write_bytes: Option<u64>,
    /// Processes and threads now.
    pub pids: Option<u32>,
    /// Writable layer and workspace, in bytes.
    pub disk_bytes: Option<u64>,
    /// Times the kernel killed a process of this sandbox for lack of memory.
    pub oom_kills: Option<u64>,
}

/// Whether a tier can be had on this host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Offer {
    /// Which tier.
    pub tier: Tier,
    /// Whether it holds everything it promises.
    pub available: bool,
    /// Whether it can be had when the caller allows a downgrade.
    pub available_with_downgrade: bool,
    /// What would be enforced, line by line, with fixes.
    pub containment: Containment,
}

/// A way of isolating.
pub trait Backend: Send + Sync + 'static {
    /// Its name, such as `native`.
    fn name(&self) -> &'static str;

    /// What it can offer here, probed.
    fn offers(&self) -> Vec<Offer>;

    /// Makes a sandbox. All it leaves on the host is named after `id`, so that [`Backend::destroy`]
    /// can remove it knowing nothing else. When it fails, nothing is left.
    fn create<'a>(&'a self, id: &'a SandboxId, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Created>>;

    /// Finds a sandbox made by an earlier daemon.
    fn reconnect<'a>(
        &'a self,
        id: &'a SandboxId,
        spec: &'a SandboxSpec,
        anchor: &'a serde_json::Value,
    ) -> BoxFuture<'a, Result<Found>>;

    /// Removes a sandbox and everything named after it. Idempotent. Kills what still runs.
    fn destroy<'a>(&'a self, id: &'a SandboxId, keep: Keep) -> BoxFuture<'a, Result<()>>;

    /// Removes a volume that was kept when its last sandbox was destroyed and that no sandbox uses
    /// now. Tells whether there was one.
    fn wipe<'a>(&'a self, volume: &'a Address) -> BoxFuture<'a, Result<bool>>;

    /// What it uses.
    fn usage<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<Usage>>;

    /// Times the kernel killed one of its processes for lack of memory, read cheaply. `None` where
    /// nothing counts them.
    fn oom_kills(&self, id: &SandboxId) -> Option<u64>;

    /// Times the kernel refused it a process or thread for its limit, read cheaply. `None` where
    /// nothing counts them.
    fn refused_forks(&self, id: &SandboxId) -> Option<u64>;

    /// Whether it is stopped because its files exceed a disk limit that is only watched.
    fn stopped_for_disk(&self, id: &SandboxId) -> bool;

    /// Removes everything of this backend (under this state directory) that belongs to none of
    /// `known`. Called once at start. Returns what it removed, for the log.
    fn sweep<'a>(&'a self, known: &'a [SandboxId]) -> BoxFuture<'a, Result<Vec<String>>>;

    /// A named sandbox is on record as running: from now on it is no longer half made, whatever a
    /// record says that is put back to an earlier state.
    fn confirm(&self, id: &SandboxId) -> Result<()> {
        let _ = id;
        Ok(())
    }

    /// Whether a sandbox was confirmed.
    fn is_confirmed(&self, id: &SandboxId) -> bool {
        let _ = id;
        false
    }

    /// Named sandboxes of this backend that are none of `known`, with what they were made to be. An
    /// engine takes those over that live, so that losing the records never ends a sandbox.
    fn strays(&self, known: &[SandboxId]) -> Vec<(SandboxId, SandboxSpec)> {
        let _ = known;
        Vec::new()
    }

    /// Begins to keep sandboxes of this spec ready, where the backend can.
    fn warm(&self, spec: &SandboxSpec);

    /// Lets go of helpers and ready sandboxes, within the time given. Named sandboxes stay.
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
    /// The volume stays if it is older than the sandbox: nobody was told of this one.
    WhatWasBefore,
}

/// One line of `isle doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Fact {
    /// What was looked at.
    pub name: String,
    /// Whether it is as Isle needs it.
    pub good: bool,
    /// What was found.
    pub found: String,
    /// The command or setting that changes it; empty when nothing needs to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
}
