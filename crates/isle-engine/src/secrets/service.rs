//! Secrets of sandboxes and runs, as a service.
//!
//! Owns nothing but what ties the vault to the rest: the vault holds the sealed values and knows which sandbox
//! uses which of them; this service decides who may have what ([`Secrets::check_requested_secrets`]), gives a run its
//! variables ([`Secrets::secrets_for_run`]), attaches and detaches, answers the gate of a sandbox that puts
//! values in the place of placeholders ([`Secrets::swaps`]), and forgets when a sandbox or a run is gone. Every
//! change is on record before it is in force.
//!
//! Invariant: a value that was ever in a sandbox is masked in all that comes out of it, for as long as its
//! workspace exists; what cannot be masked is not shown.
//!
//! Called by the pipeline's stage `secrets`, by `network` when a gate is made, by `sandbox` when one is
//! connected to or removed, and by the operations on secrets. It reads the tables of sandboxes and runs, writes
//! the journal, and publishes through the notifier.

use std::sync::Arc;

use super::Vault;
use crate::engine::EngineConfig;
use crate::events::Notifier;
use crate::journal::Journal;
use crate::run::LiveRuns;
use crate::sandbox::Fleet;

/// See the module.
#[derive(Debug)]
pub(crate) struct Secrets {
    pub(super) vault: Arc<Vault>,
    pub(super) config: Arc<EngineConfig>,
    pub(super) journal: Arc<Journal>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) runs: Arc<LiveRuns>,
    pub(super) notifier: Arc<Notifier>,
}

impl Secrets {
    pub(crate) fn new(
        vault: Arc<Vault>,
        config: Arc<EngineConfig>,
        journal: Arc<Journal>,
        fleet: Arc<Fleet>,
        runs: Arc<LiveRuns>,
        notifier: Arc<Notifier>,
    ) -> Self {
        Self { vault, config, journal, fleet, runs, notifier }
    }
}
