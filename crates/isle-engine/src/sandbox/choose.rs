//! Which backend creates a sandbox: the one that was asked for, or else the first that offers the tier. Less
//! than was asked for is never given silently.

use std::sync::Arc;

use isle_core::backend::{Backend, BackendName, GuaranteeStatus, Offer, SandboxSpec};
use isle_core::{Code, Error, Result};

/// What every backend offers on this host, probed now.
pub(crate) fn offers(backends: &[Arc<dyn Backend>]) -> Vec<(Arc<dyn Backend>, Offer)> {
    backends
        .iter()
        .flat_map(|backend| backend.offers().into_iter().map(|offer| (Arc::clone(backend), offer)))
        .collect()
}

/// The backend for a spec.
pub(super) fn choose(known: &[(Arc<dyn Backend>, Offer)], spec: &SandboxSpec) -> Result<Arc<dyn Backend>> {
    let is_asked_for = |offer: &Offer| spec.backend.as_ref().is_none_or(|asked| *asked == offer.backend);
    let mut incomplete: Option<&Offer> = None;
    let mut unable: Option<Error> = None;
    for (backend, offer) in known.iter().filter(|(_, offer)| offer.tier == spec.tier && is_asked_for(offer)) {
        match offer.capabilities.check(spec) {
            Err(error) => drop(unable.get_or_insert(error)),
            Ok(()) if offer.available || (spec.allow_downgrade && offer.available_with_downgrade) => {
                return Ok(Arc::clone(backend));
            }
            Ok(()) => drop(incomplete.get_or_insert(offer)),
        }
    }
    if let Some(asked) = spec.backend.as_ref().filter(|_| !known.iter().any(|(_, offer)| is_asked_for(offer)))
    {
        return Err(no_such_backend(asked, known.iter().map(|(_, offer)| &offer.backend)));
    }
    Err(match (incomplete, unable) {
        (None, Some(error)) => error,
        (incomplete, _) => unavailable(spec, incomplete),
    })
}

/// The error for a name that no backend has.
pub(crate) fn unknown_backend(asked: &BackendName, backends: &[Arc<dyn Backend>]) -> Error {
    let names: Vec<BackendName> = backends.iter().map(|backend| backend.name()).collect();
    no_such_backend(asked, names.iter())
}

fn no_such_backend<'a>(asked: &BackendName, known: impl Iterator<Item = &'a BackendName>) -> Error {
    let mut names: Vec<String> = known.map(ToString::to_string).collect();
    names.dedup();
    Error::new(Code::BackendUnavailable, format!("unknown backend {:?}", asked.as_str()))
        .next(format!("use one of {}, or leave it out for the first that offers the tier", names.join(", ")))
        .detail("backends", names)
}

fn unavailable(spec: &SandboxSpec, offer: Option<&Offer>) -> Error {
    let tier = spec.tier.as_str();
    let Some(offer) = offer else {
        let message = match &spec.backend {
            Some(backend) => format!("the backend {backend} does not offer the {tier} tier"),
            None => format!("no backend offers the {tier} tier"),
        };
        return Error::new(Code::BackendUnavailable, message)
            .next("`isle doctor` lists the backends and tiers of this host");
    };
    let missing: Vec<_> = offer
        .containment
        .guarantees
        .iter()
        .filter(|guarantee| guarantee.status == GuaranteeStatus::Missing)
        .collect();
    let reasons: Vec<String> =
        missing.iter().map(|guarantee| format!("{}: {}", guarantee.key, guarantee.how)).collect();
    let message = format!("this host cannot offer the {tier} tier: {}", reasons.join("; "));
    let mut error = Error::new(Code::BackendUnavailable, message)
        .detail("missing", missing.iter().map(|guarantee| guarantee.key.clone()).collect::<Vec<_>>());
    for fix in missing.iter().map(|guarantee| &guarantee.fix).filter(|fix| !fix.is_empty()) {
        if !error.next_steps.contains(fix) {
            error = error.next(fix.clone());
        }
    }
    if offer.available_with_downgrade {
        error = error.next(
            "or accept what the host can enforce: `allow_downgrade` in the call, `--allow-downgrade`, or \
             `allow_downgrade = true` in the configuration; the containment report lists what is missing",
        );
    }
    error.next("`isle doctor` explains what is missing")
}
