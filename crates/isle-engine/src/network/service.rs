//! What sandboxes may reach.
//!
//! Owns the grants of namespaces, the requests that wait for a person, the resolver and the traffic of all gates.
//! The state of one sandbox (its gate, its grants and where each comes from) is in [`super::SandboxNetwork`],
//! part of the sandbox, and is changed here only. What a grant means and what passes a gate is decided in
//! `isle-egress`.
//!
//! Invariants: a grant is on record before it is in force, and both change in the same order (whoever changes
//! the grants of a sandbox holds `sources`, whoever changes those of a namespace holds its list); a child has no
//! grants of its own; what the guest says decides nothing, it only names what it would like.
//!
//! Flows: `grants` (allow, revoke, open the gate), `namespace_grants`, `network_requests` → `approval_prompt` →
//! `approve` (a denial becomes a question, an answer becomes a grant), `serve` (the stream between a gate and
//! the agent), `peers` (sandboxes of one family), `trust` (the certificate authority of a gate), `run_traffic`
//! (what passed while a run was in progress).
//!
//! Called by the pipeline's stage `network`, by `sandbox` when one is connected to, and by the operations on
//! grants and requests. Calls secrets (what a gate puts in the place of placeholders), ports, journal and
//! notifier; looks at the tables of sandboxes and runs.

use std::sync::Arc;

use isle_egress::{Resolver, Traffic, TrafficTotals};

use super::namespace_grants::NamespaceGrants;
use super::network_requests::{NetworkRequest, NetworkRequests};
use super::ports::Ports;
use crate::base::Tasks;
use crate::engine::EngineConfig;
use crate::events::Notifier;
use crate::journal::Journal;
use crate::run::LiveRuns;
use crate::sandbox::Fleet;
use crate::secrets::Secrets;

/// What the network is built on.
pub(crate) struct NetworkParts {
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) runs: Arc<LiveRuns>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) ports: Arc<Ports>,
    pub(crate) resolver: Arc<Resolver>,
}

/// See the module.
pub(crate) struct Network {
    pub(super) config: Arc<EngineConfig>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) journal: Arc<Journal>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) runs: Arc<LiveRuns>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) ports: Arc<Ports>,
    pub(super) resolver: Arc<Resolver>,
    /// What went through the gates of all sandboxes.
    pub(super) traffic: Arc<TrafficTotals>,
    /// What all sandboxes of a namespace may reach.
    pub(super) namespace_grants: NamespaceGrants,
    /// What sandboxes were denied and a person may grant.
    pub(super) requests: Arc<NetworkRequests>,
}

impl Network {
    pub(crate) fn new(parts: NetworkParts) -> Self {
        let NetworkParts { config, tasks, journal, notifier, fleet, runs, secrets, ports, resolver } = parts;
        Self {
            config,
            tasks,
            journal,
            notifier,
            fleet,
            runs,
            secrets,
            ports,
            resolver,
            traffic: Arc::default(),
            namespace_grants: NamespaceGrants::default(),
            requests: Arc::default(),
        }
    }

    /// Requests that wait for a person or were denied of late, oldest first.
    pub(crate) fn list_requests(&self) -> Vec<Arc<NetworkRequest>> {
        self.requests.list()
    }

    /// What went through all gates since the start.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic.now()
    }
}
