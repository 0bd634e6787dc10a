//! `runtimes`: what this host can isolate with, and what it lacks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::{Fact, Offer};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::sandbox::offers;

pub(super) struct Runtimes;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// Tiers, with what each would enforce.
    tiers: Vec<BackendOffer>,
    /// What was found on this host, by section.
    facts: BTreeMap<String, Vec<Fact>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct BackendOffer {
    /// Which backend offers it.
    backend: String,
    /// What it offers.
    #[serde(flatten)]
    offer: Offer,
}

impl Operation for Runtimes {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "runtimes";
    const TITLE: &'static str = "Tiers of this host";
    const DESCRIPTION: &'static str =
        "Which tiers this host offers, what each enforces, what is missing and how to fix it.";
    const ROUTE: Route = Route { method: Method::Get, path: "/runtimes" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, _: CallContext, _: Input) -> Result<Output> {
        let tiers = offers(&engine.inner.backends)
            .into_iter()
            .map(|(backend, offer)| BackendOffer { backend: backend.name().to_owned(), offer })
            .collect();
        let mut facts: BTreeMap<String, Vec<Fact>> = BTreeMap::new();
        for backend in &engine.inner.backends {
            for (section, lines) in backend.facts() {
                facts.entry(section).or_default().extend(lines);
            }
        }
        Ok(Output { tiers, facts })
    }
}
