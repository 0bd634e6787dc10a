//! `health`: the daemon at a glance.

use super::Handler;
use crate::admission::queue::Load;
use crate::context::{CallContext, CallerRole};
use crate::engine::Engine;
use crate::sandbox::SandboxState;
use isle_api::ops::health::{Health, Input, Output, SweeperHealth, TierHealth};
use isle_core::Result;
use isle_core::backend::GuaranteeStatus;

impl Handler for Health {
    async fn call(engine: Engine, context: CallContext, _: Input) -> Result<Output> {
        let inner = &engine.inner;
        let named = inner.fleet.named_in(&context.namespace);
        let Load { running, waiting, .. } = match context.role {
            CallerRole::Operator => inner.admission.load(),
            CallerRole::Tenant => inner.admission.load_of(&context.namespace),
        };
        let swept = inner.sandboxes.swept();
        let is_operator = context.role == CallerRole::Operator;
        let tiers = inner
            .backends
            .offers()
            .iter()
            .map(|(_, offer)| TierHealth {
                backend: offer.backend.clone(),
                tier: offer.tier,
                capabilities: offer.capabilities,
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
            status: if inner.tasks.is_stopping() { "stopping" } else { "ok" },
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: is_operator.then(|| inner.started.elapsed().as_secs()),
            sandboxes: named.len(),
            failed_sandboxes: named.iter().filter(|sandbox| sandbox.state() == SandboxState::Failed).count(),
            one_shots: inner.fleet.one_shots_in(&context.namespace),
            running,
            waiting,
            sweeper: is_operator.then_some(SweeperHealth {
                passes: swept.passes,
                expired: swept.expired,
                idle: swept.idle,
                failures: swept.failures,
                last_look_us: swept.last_look_us,
            }),
            tiers,
        })
    }
}
