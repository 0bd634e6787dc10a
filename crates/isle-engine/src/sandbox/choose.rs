//! Which backend makes a sandbox: the first that offers the tier. Less than was asked for is never
//! given silently.

use std::sync::Arc;

use crate::backend::{Backend, GuaranteeStatus, Offer, SandboxSpec, Tier};
use crate::error::{Code, Error, Result};

/// What every backend offers on this host, probed now.
pub(crate) fn offers(backends: &[Arc<dyn Backend>]) -> Vec<(Arc<dyn Backend>, Offer)> {
    backends
        .iter()
        .flat_map(|backend| backend.offers().into_iter().map(|offer| (Arc::clone(backend), offer)))
        .collect()
}

/// The backend for a spec.
pub(super) fn choose(known: &[(Arc<dyn Backend>, Offer)], spec: &SandboxSpec) -> Result<Arc<dyn Backend>> {
    let mut refused: Option<&Offer> = None;
    for (backend, offer) in known.iter().filter(|(_, offer)| offer.tier == spec.tier) {
        if offer.available || (spec.allow_downgrade && offer.available_with_downgrade) {
            return Ok(Arc::clone(backend));
        }
        refused.get_or_insert(offer);
    }
    Err(unavailable(spec.tier, refused))
}

fn unavailable(tier: Tier, offer: Option<&Offer>) -> Error {
    let tier_name = tier.as_str();
    let Some(offer) = offer else {
        return Error::new(Code::BackendUnavailable, format!("nothing here offers the {tier_name} tier"))
            .next("`isle doctor` shows the tiers of this host");
    };
    let missing: Vec<_> = offer
        .containment
        .guarantees
        .iter()
        .filter(|guarantee| guarantee.status == GuaranteeStatus::Missing)
        .collect();
    let reasons: Vec<String> =
        missing.iter().map(|guarantee| format!("{}: {}", guarantee.key, guarantee.how)).collect();
    let message = format!("this host cannot offer the {tier_name} tier: {}", reasons.join("; "));
    let mut error = Error::new(Code::BackendUnavailable, message)
        .detail("missing", missing.iter().map(|guarantee| guarantee.key.clone()).collect::<Vec<_>>());
    for fix in missing.iter().map(|guarantee| &guarantee.fix).filter(|fix| !fix.is_empty()) {
        if !error.next_steps.contains(fix) {
            error = error.next(fix.clone());
        }
    }
    if offer.available_with_downgrade {
        error = error.next(
            "or accept what the host can do: `allow_downgrade` in the call, `--allow-downgrade`, or \
             `allow_downgrade = true` in the configuration; the containment report names what is missing",
        );
    }
    error.next("`isle doctor` explains what is missing")
}
