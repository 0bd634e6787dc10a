//! `health`: the daemon at a glance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::{GuaranteeStatus, Tier};
use crate::context::{Authority, CallContext};
use crate::engine::Engine;
use crate::error::Result;
use crate::queue::Load;
use crate::sandbox::SandboxState;

pub(super) struct Health;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// ok, or stopping.
    status: &'static str,
    /// Version of the engine.
    version: &'static str,
    /// Since when it runs.
    uptime_seconds: u64,
    /// Named sandboxes.
    sandboxes: usize,
    /// Of those, the ones that died.
    failed_sandboxes: usize,
    /// Sandboxes for one command that exist now.
    one_shots: usize,
    /// Commands going on.
    running: usize,
    /// Calls waiting for their turn.
    waiting: usize,
    /// What became of sandboxes whose time was up.
    sweeper: SweeperHealth,
    /// Tiers of this host.
    tiers: Vec<TierHealth>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct SweeperHealth {
    /// Times it looked.
    passes: u64,
    /// Removed because their TTL had passed.
    expired: u64,
    /// Removed because nobody used them.
    idle: u64,
    /// Removals that failed; they are tried again.
    failures: u64,
    /// How long the last look at all sandboxes took, in microseconds.
    last_look_us: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct TierHealth {
    /// Which backend.
    backend: String,
    /// Which tier.
    tier: Tier,
    /// Whether it holds everything it promises.
    available: bool,
    /// Whether it can be had with a downgrade.
    available_with_downgrade: bool,
    /// Why not, when it does not.
    reasons: Vec<String>,
}

impl Operation for Health {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "health";
    const TITLE: &'static str = "Health";
    const DESCRIPTION: &'static str = "Version, counts and tiers of the daemon.";
    const ROUTE: Route = Route { method: Method::Get, path: "/health" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, _: Input) -> Result<Output> {
        let inner = &engine.inner;
        let named = inner.fleet.named_in(&context.namespace);
        let Load { running, waiting, .. } = match context.authority {
            Authority::Operator => inner.admission.load(),
            Authority::Tenant => inner.admission.load_of(&context.namespace),
        };
        let swept = inner.sweeper.counts();
        let tiers = crate::read(&inner.offers)
            .iter()
            .map(|(backend, offer)| TierHealth {
                backend: backend.name().to_owned(),
                tier: offer.tier,
                available: offer.available,
                available_with_downgrade: offer.available_with_downgrade,
                reasons: offer
                    .containment
                    .guarantees
                    .iter()
                    .filter(|guarantee| guarantee.status == GuaranteeStatus::Missing)
                    .map(|guarantee| format!("{}: {}", guarantee.key, guarantee.how))
                    .collect(),
            })
            .collect();
        Ok(Output {
            status: if inner.is_stopping() { "stopping" } else { "ok" },
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: inner.started.elapsed().as_secs(),
            sandboxes: named.len(),
            failed_sandboxes: named.iter().filter(|sandbox| sandbox.state() == SandboxState::Failed).count(),
            one_shots: inner.fleet.one_shots_in(&context.namespace),
            running,
            waiting,
            sweeper: SweeperHealth {
                passes: swept.passes,
                expired: swept.expired,
                idle: swept.idle,
                failures: swept.failures,
                last_look_us: swept.last_look_us,
            },
            tiers,
        })
    }
}
