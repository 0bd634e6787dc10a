//! Ports of sandboxes, for connections that come from outside.
//!
//! Owns the forwards (a listener on this host's loopback for a port of a sandbox), the port tokens (who may
//! reach a port over HTTP, for how long) and the counters of both. A connection is made by the agent inside the
//! sandbox; nothing but its own loopback is within its reach, and while a connection is open the sandbox counts
//! as used.
//!
//! Invariants: a forward and a token belong to one incarnation of a sandbox and end with it; no more
//! connections are open than the slots of [`port_streams`](super::port_streams) allow; what is forwarded or
//! minted is audited before it works.
//!
//! Called by the operations `expose`, `unexpose`, `wait_for_port` and `port_url`, by the server's listener for
//! ports, by `sandbox` when one is destroyed, and by the network for connections between sandboxes of one
//! family. It needs to know which sandboxes exist and nothing about grants.

use std::sync::Arc;

use super::forward::Forwards;
use super::port_streams::{PortCount, PortCounts};
use super::port_tokens::PortTokens;
use crate::base::Tasks;
use crate::engine::EngineConfig;
use crate::journal::Journal;
use crate::sandbox::{Fleet, Sandbox};
use isle_core::values::SandboxId;

use super::Forward;

/// See the module.
pub(crate) struct Ports {
    pub(super) config: Arc<EngineConfig>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) journal: Arc<Journal>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) forwards: Forwards,
    pub(super) tokens: PortTokens,
}

impl Ports {
    pub(crate) fn new(
        config: Arc<EngineConfig>,
        tasks: Arc<Tasks>,
        journal: Arc<Journal>,
        fleet: Arc<Fleet>,
    ) -> Self {
        Self { config, tasks, journal, fleet, forwards: Forwards::default(), tokens: PortTokens::default() }
    }

    /// The forwards of a sandbox.
    pub(crate) fn forwards_of(&self, sandbox: &Sandbox) -> Vec<Arc<Forward>> {
        self.forwards.of(sandbox)
    }

    /// An incarnation is gone: its tokens are worthless, connections that were made with them are cut.
    pub(crate) fn end_of_sandbox(&self, incarnation: &SandboxId) {
        self.tokens.end_of_sandbox(incarnation);
    }

    /// The token of a tenant was revoked, and with it what was minted with it.
    pub(crate) fn end_of_token(&self, token: &str) {
        self.tokens.end_of_token(token);
    }

    /// What went over ports since the start, by how it came.
    pub(crate) fn counts(&self) -> [(&'static str, PortCount); 3] {
        [
            ("exposed", self.forwards.exposed.now()),
            ("proxy", self.forwards.proxied.now()),
            ("peer", self.forwards.peers.now()),
        ]
    }

    /// All connections from sandbox to sandbox.
    pub(super) fn peer_counts(&self) -> &Arc<PortCounts> {
        &self.forwards.peers
    }
}
