//! What went through the gate of a sandbox while a run went on. A run is told how much went through in its
//! time, and whether others went on in that time: then it is theirs, too. What was denied is told to the run
//! whose program it was, as the agent says; what nobody can say of is marked as shared.

use std::sync::Arc;

use isle_egress::TrafficSummary;
use isle_store::RunNetwork;

use super::SandboxNetwork;
use crate::sandbox::Sandbox;
use isle_api::shapes::ViolationShape;
use isle_core::values::RunId;

/// Runs of one sandbox.
#[derive(Debug, Default)]
pub(super) struct RunsInProgress {
    /// How many go on.
    now: u64,
    /// How many began so far.
    begun: u64,
}

/// The time of one run, from when it begins until this is dropped.
#[derive(Debug)]
pub(crate) struct RunTraffic {
    sandbox: Arc<Sandbox>,
    /// What had gone through before; `None` for a run that an earlier engine began.
    before: Option<TrafficSummary>,
    /// Where the log stood.
    sequence: u64,
    /// Whether nothing else went on when it began.
    alone: bool,
    /// Which of all runs it is.
    place: u64,
}

/// Whether other runs went on in the time of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    None,
    Some,
}

/// When a run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Began {
    Now,
    /// Under an earlier engine, which took its counts with it.
    Earlier,
}

impl SandboxNetwork {
    /// What went through its gate so far.
    pub(crate) fn passed(&self) -> TrafficSummary {
        self.traffic.get().map(|traffic| traffic.summary()).unwrap_or_default()
    }
}

impl RunTraffic {
    pub(crate) fn open(sandbox: &Arc<Sandbox>, began: Began) -> Self {
        let network = &sandbox.network;
        let (alone, place) = {
            let mut going = crate::lock(&network.going);
            going.now += 1;
            going.begun += 1;
            (going.now == 1, going.begun)
        };
        Self {
            sandbox: Arc::clone(sandbox),
            before: (began == Began::Now).then(|| network.passed()),
            sequence: network.gate().map_or(0, |gate| gate.sequence()),
            alone,
            place,
        }
    }

    /// What was denied since, as the run tells it.
    pub(crate) fn denials(&self, run: &RunId) -> Vec<ViolationShape> {
        self.sandbox.denials_of(run, self.sequence, self.others())
    }

    /// Addresses were dialed so often until the run ended, which the kernel counts and says no more of.
    pub(crate) fn dialed_addresses(&self, count: u64) -> Option<ViolationShape> {
        self.sandbox.dialed_addresses(count, self.others())
    }

    /// Whether other runs went on in its time.
    pub(crate) fn overlaps(&self) -> bool {
        self.others() == Others::Some
    }

    fn others(&self) -> Others {
        let overlapped = !self.alone || crate::lock(&self.sandbox.network.going).begun != self.place;
        if overlapped { Others::Some } else { Others::None }
    }

    /// What went through since.
    pub(crate) fn network(&self) -> Option<RunNetwork> {
        let passed = self.sandbox.network.passed().since(self.before?);
        let overlapped = self.overlaps();
        // Where nothing went through at all, nobody has to be told apart.
        let shared = overlapped && passed != TrafficSummary::default();
        let TrafficSummary { connections, sent, received, denied } = passed;
        Some(RunNetwork { sent_bytes: sent, received_bytes: received, connections, denied, shared })
    }
}

impl Drop for RunTraffic {
    fn drop(&mut self) {
        crate::lock(&self.sandbox.network.going).now -= 1;
    }
}
