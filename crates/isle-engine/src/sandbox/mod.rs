//! Sandboxes: what the engine knows of each, where they are kept, and the verbs that make, find
//! and end them, one file each.

mod ceilings;
mod choose;
mod destroy;
mod end_children;
mod extend;
mod fleet;
mod lease;
mod lock_queue;
mod make;
mod one_shot;
mod pause;
mod replace;
mod service;
mod settings;
mod spare;
mod spawn_counts;
mod sweep;
mod unresponsive;
mod usage;
mod wipes;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::agent::{self, AgentClient};
use crate::network::{SandboxNetwork, StoredGrant};
use crate::profile::MadeBy;
use crate::secrets::SandboxSecrets;
use isle_core::backend::{
    Backend, BackendName, Capabilities, Containment, Guarantee, GuaranteeStatus, SandboxSpec,
};
use isle_core::values::{Address, Namespace, RunId, SandboxId, SandboxName};
use isle_core::{Code, Error, Result};
use isle_vault::PiiKinds;

pub(crate) use ceilings::{Ceilings, Host, is_another_backend, most_memory};
pub(crate) use choose::{offers, unknown_backend};
pub(crate) use fleet::Fleet;
pub use isle_api::shapes::SandboxState;
pub(crate) use lease::{Lease, Terms, on_the_wall};
pub(crate) use lock_queue::{LockHeld, LockQueue, LockRequest};
pub(crate) use make::{Birth, Made};
pub(crate) use one_shot::OneShotGuard;
use one_shot::OneShotShared;
pub(crate) use pause::Stood;
pub(crate) use service::{Backends, ControlSockets, Sandboxes, SandboxesParts};
pub(crate) use settings::Chosen;
pub use settings::Settings;
pub(crate) use settings::check as check_limits;
pub(crate) use spawn_counts::{CountedChild, SpawnCounts};
pub(crate) use usage::Measured;
pub(crate) use wipes::Wipe;

/// The states a sandbox is in by itself. That it is paused is part of its lease; that its agent does not answer is
/// seen, and may pass.
const OWN_STATES: [SandboxState; 4] =
    [SandboxState::Creating, SandboxState::Running, SandboxState::Failed, SandboxState::Destroying];

/// Whether a named sandbox was made as the configuration says or as a caller asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// By first use: it follows the configuration.
    Defaults,
    /// By `create` with settings: it keeps them.
    Explicit,
}

/// What is stored of a sandbox's making.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredSpec {
    /// How it came to be.
    pub(crate) origin: Origin,
    /// Which backend made it.
    pub(crate) backend: BackendName,
    /// What it is.
    pub(crate) spec: SandboxSpec,
    /// How long it may live.
    #[serde(default)]
    pub(crate) terms: Terms,
    /// The profile it was made by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<MadeBy>,
    /// What it was granted since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) grants: Vec<StoredGrant>,
    /// The authority its gate answers in the name of, where that opens encryption. Believed inside only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) authority: Option<String>,
}

/// One incarnation of a sandbox.
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    /// Whose it is.
    pub(crate) namespace: Namespace,
    pub(crate) name: SandboxName,
    pub(crate) spec: SandboxSpec,
    pub(crate) terms: Terms,
    /// The profile it was made by.
    pub(crate) profile: Option<MadeBy>,
    /// What is left of its time.
    pub(crate) lease: Lease,
    pub(crate) origin: Origin,
    pub(crate) fingerprint: String,
    pub(crate) backend: Arc<dyn Backend>,
    /// What it can do.
    pub(crate) capabilities: Capabilities,
    pub(crate) created_at_ms: i64,
    /// Programs already looked up in it.
    pub(crate) programs: Arc<Programs>,
    /// Who asks for it runs alone among those who ask.
    pub(crate) lock_queue: Arc<LockQueue>,
    /// What it may reach.
    pub(crate) network: SandboxNetwork,
    /// Its secrets, once somebody asked for them.
    pub(crate) secrets: OnceLock<Arc<SandboxSecrets>>,
    /// Personal data that is masked in what comes out of it, known before it is used.
    pub(crate) personal: OnceLock<PiiKinds>,
    state: AtomicU8,
    agent: OnceLock<AgentClient>,
    containment: OnceLock<Containment>,
    drifted: AtomicBool,
    /// Runs whose end is recorded and which the agent may drop with the next request.
    forgettable: Mutex<Vec<String>>,
    running: AtomicUsize,
    last_used_ms: AtomicI64,
    /// A child is a use of its parent.
    parent: Mutex<Option<InUse>>,
    /// Its agent, which an earlier engine made, is being reached.
    reconnecting: AtomicBool,
    reconnected: tokio::sync::Notify,
    /// Since when its agent does not answer.
    silent_since: Mutex<Option<std::time::Instant>>,
    /// Whether one of its limits is kept by its agent.
    watched_limits: OnceLock<bool>,
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Sandbox")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Sandbox {
    pub(crate) fn new(
        id: SandboxId,
        address: Address,
        stored: StoredSpec,
        backend: Arc<dyn Backend>,
        created_at_ms: i64,
    ) -> Self {
        Self {
            id,
            namespace: address.namespace,
            name: address.name,
            fingerprint: fingerprint(&stored.spec),
            capabilities: backend.capabilities(&stored.spec),
            spec: stored.spec,
            terms: stored.terms,
            profile: stored.profile,
            lease: Lease::new(stored.terms),
            origin: stored.origin,
            backend,
            created_at_ms,
            programs: Arc::default(),
            lock_queue: Arc::default(),
            network: SandboxNetwork::with(stored.grants, stored.authority),
            secrets: OnceLock::new(),
            personal: OnceLock::new(),
            state: AtomicU8::new(SandboxState::Creating as u8),
            agent: OnceLock::new(),
            containment: OnceLock::new(),
            drifted: AtomicBool::new(false),
            forgettable: Mutex::default(),
            running: AtomicUsize::new(0),
            last_used_ms: AtomicI64::new(created_at_ms),
            parent: Mutex::default(),
            reconnecting: AtomicBool::new(false),
            reconnected: tokio::sync::Notify::new(),
            silent_since: Mutex::default(),
            watched_limits: OnceLock::new(),
        }
    }

    /// Whether it is as this spec says.
    pub(crate) fn has_spec(&self, spec: &SandboxSpec) -> bool {
        let backend = spec.backend.as_ref().is_none_or(|backend| *backend == self.backend.name());
        backend && self.fingerprint == fingerprint(spec)
    }

    /// What it is called among those of all tenants.
    pub(crate) fn address(&self) -> Address {
        Address::new(self.namespace.clone(), self.name.clone())
    }

    /// Where it is in its life. A sandbox whose agent is gone has failed, whatever was last said.
    pub(crate) fn state(&self) -> SandboxState {
        let state = OWN_STATES
            .into_iter()
            .find(|state| *state as u8 == self.state.load(Ordering::Acquire))
            .unwrap_or(SandboxState::Failed);
        match state {
            SandboxState::Running if self.is_reconnecting() => SandboxState::Running,
            SandboxState::Running if self.agent.get().is_none_or(AgentClient::is_closed) => {
                SandboxState::Failed
            }
            other => other,
        }
    }

    /// The same, as it is shown.
    pub(crate) fn shown_state(&self) -> SandboxState {
        match self.state() {
            SandboxState::Running if self.is_unresponsive() => SandboxState::Unresponsive,
            SandboxState::Running if self.lease.is_paused() => SandboxState::Paused,
            other => other,
        }
    }

    pub(crate) fn set_state(&self, state: SandboxState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Its agent answers, and this is what is enforced. Who made it says when it is running.
    pub(crate) fn is_up(&self, agent: AgentClient, containment: Containment) {
        // Both are set once per incarnation; a second time cannot happen and would change nothing.
        self.agent.set(agent).ok();
        self.containment.set(containment).ok();
    }

    /// The connection to its agent.
    pub(crate) fn agent(&self) -> Result<&AgentClient> {
        self.agent
            .get()
            .ok_or_else(|| if self.is_reconnecting() { agent::unresponsive() } else { agent::gone() })
    }

    /// What is enforced, once that is known.
    pub(crate) fn containment(&self) -> Option<&Containment> {
        self.containment.get()
    }

    pub(crate) fn set_containment(&self, containment: Containment) {
        self.containment.set(containment).ok();
    }

    /// Whether the configuration it was made under has changed since.
    pub(crate) fn drifted(&self) -> bool {
        self.drifted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_drifted(&self) {
        self.drifted.store(true, Ordering::Relaxed);
    }

    /// Runs going on in it.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Leaves it to the next request to tell the agent that a run may be dropped; `false` when too
    /// many wait already.
    pub(crate) fn forget_later(&self, run: &RunId) -> bool {
        const MOST: usize = 32;
        let mut forgettable = crate::lock(&self.forgettable);
        if forgettable.len() >= MOST {
            return false;
        }
        forgettable.push(run.as_str().to_owned());
        true
    }

    /// The runs the agent may drop now.
    pub(crate) fn take_forgettable(&self) -> Vec<String> {
        std::mem::take(&mut *crate::lock(&self.forgettable))
    }

    pub(crate) fn run_begins(&self, now_ms: i64) {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.lease.use_begins();
        self.last_used_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(crate) fn run_ends(&self) {
        self.lease.use_ends();
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn last_used_ms(&self) -> i64 {
        self.last_used_ms.load(Ordering::Relaxed)
    }

    /// What is not for children.
    pub(crate) fn refuse_child(&self, what: &str) -> Result<()> {
        let Some(child) = &self.spec.child else { return Ok(()) };
        let parent = &child.parent.name;
        Err(Error::new(Code::PermissionDenied, format!("{} is a child of {parent}: no {what}", self.name))
            .detail("parent", parent.as_str())
            .next("destroy it with destroy_child, and spawn another one"))
    }

    /// Whether a call may use it as it is.
    pub(crate) fn is_usable(&self) -> bool {
        self.state() == SandboxState::Running
            && !(self.drifted() && self.running() == 0 && !self.lease.is_paused())
    }

    /// Its parent is in use for as long as it lives.
    pub(crate) fn keep_parent(&self, parent: InUse) {
        crate::lock(&self.parent).replace(parent);
    }

    /// No longer.
    pub(crate) fn let_parent_go(&self) {
        crate::lock(&self.parent).take();
    }

    /// It counts as used for as long as somebody holds this.
    pub(crate) fn hold(self: &Arc<Self>) -> InUse {
        self.lease.use_begins();
        InUse(Arc::clone(self))
    }
}

/// Somebody uses a sandbox without a run: looks at its files, keeps them in step.
#[derive(Debug)]
pub(crate) struct InUse(Arc<Sandbox>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.lease.use_ends();
    }
}

/// The fingerprint of a spec: two sandboxes with the same one have the same policy. The backend that was asked
/// for is not part of it: records contain the one that created the sandbox.
fn fingerprint(spec: &SandboxSpec) -> String {
    let policy = SandboxSpec { backend: None, ..spec.clone() };
    // A spec is plain data; turning it into JSON cannot fail.
    let text = serde_json::to_vec(&policy).unwrap_or_default();
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Where programs are, as found by earlier calls. Only what was found is remembered: what is
/// missing today may be installed tomorrow.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    found: Mutex<HashMap<&'static str, Vec<u8>>>,
}

impl Programs {
    /// The first of `candidates` in the sandbox; asked of the agent once.
    pub(crate) async fn find(
        &self,
        sandbox: &Sandbox,
        what: &'static str,
        candidates: &[&str],
    ) -> Result<Option<Vec<u8>>> {
        if let Some(path) = crate::lock(&self.found).get(what) {
            return Ok(Some(path.clone()));
        }
        let found = sandbox.agent()?.which(candidates).await?;
        if let Some(path) = &found {
            crate::lock(&self.found).insert(what, path.clone());
        }
        Ok(found)
    }
}

/// The report of the backend, corrected by what the agent found it could not set up.
fn containment_as_seen(mut containment: Containment, welcome: &isle_wire::Welcome) -> Containment {
    for missing in &welcome.missing {
        let found = containment.guarantees.iter_mut().find(|guarantee| guarantee.key == missing.key);
        match found {
            Some(guarantee) => {
                guarantee.status = GuaranteeStatus::Missing;
                guarantee.how.clone_from(&missing.reason);
            }
            None => containment.guarantees.push(Guarantee {
                key: missing.key.clone(),
                status: GuaranteeStatus::Missing,
                how: missing.reason.clone(),
                fix: String::new(),
                open: Vec::new(),
            }),
        }
    }
    containment
}

/// Refuses a sandbox whose agent could not set up everything, unless less was allowed.
fn refuse_downgrade(
    spec: &SandboxSpec,
    containment: &Containment,
    missing: &[isle_wire::Missing],
) -> Result<()> {
    if missing.is_empty() || spec.allow_downgrade {
        return Ok(());
    }
    let reasons: Vec<String> =
        missing.iter().map(|missing| format!("{}: {}", missing.key, missing.reason)).collect();
    let tier = containment.tier.as_str();
    Err(Error::new(
        Code::BackendUnavailable,
        format!("the sandbox could not be set up as the {tier} tier promises: {}", reasons.join("; ")),
    )
    .next("`isle doctor` explains what is missing")
    .next("or accept what the host can do with allow_downgrade"))
}
