//! What went through the gate of a sandbox while a run went on. A connection comes to the gate from the
//! agent, which accepted it; no kernel says whose program made it. So a run is told what went through in its
//! time, and whether others went on in that time: then it is theirs, too.

use std::sync::Arc;

use isle_egress::Passed;
use isle_store::RunNetwork;

use super::SandboxNetwork;
use crate::ops::shapes::ViolationShape;
use crate::sandbox::Sandbox;

/// Runs of one sandbox.
#[derive(Debug, Default)]
pub(super) struct Going {
    /// How many go on.
    now: u64,
    /// How many began so far.
    begun: u64,
}

/// The time of one run, from when it begins until this is dropped.
#[derive(Debug)]
pub(crate) struct Window {
    sandbox: Arc<Sandbox>,
    /// What had gone through before; `None` for a run that an earlier engine began.
    before: Option<Passed>,
    /// Where the log stood.
    sequence: u64,
    /// Whether nothing else went on when it began.
    alone: bool,
    /// Which of all runs it is.
    place: u64,
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
    pub(crate) fn passed(&self) -> Passed {
        self.traffic.get().map(|traffic| traffic.passed()).unwrap_or_default()
    }
}

impl Window {
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
    pub(crate) fn denials(&self) -> Vec<ViolationShape> {
        self.sandbox.denials_after(self.sequence)
    }

    /// What went through since.
    pub(crate) fn network(&self) -> Option<RunNetwork> {
        let passed = self.sandbox.network.passed().since(self.before?);
        let overlapped = !self.alone || crate::lock(&self.sandbox.network.going).begun != self.place;
        // Where nothing went through at all, nobody has to be told apart.
        let shared = overlapped && passed != Passed::default();
        let Passed { connections, sent, received, denied } = passed;
        Some(RunNetwork { sent_bytes: sent, received_bytes: received, connections, denied, shared })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        crate::lock(&self.sandbox.network.going).now -= 1;
    }
}
