//! `runtimes`: what this host can isolate with, and what it lacks.

use super::Handler;
use crate::context::{CallContext, CallerRole};
use crate::engine::Engine;
use crate::sandbox::offers;
use isle_api::ops::runtimes::{Input, Output, Runtimes};
use isle_core::Result;
use isle_core::backend::Fact;
use std::collections::BTreeMap;

impl Handler for Runtimes {
    async fn call(engine: Engine, context: CallContext, _: Input) -> Result<Output> {
        let tiers = offers(engine.inner.backends.all()).into_iter().map(|(_, offer)| offer).collect();
        let mut facts: BTreeMap<String, Vec<Fact>> = BTreeMap::new();
        // Kernel, control groups and user of the host are no concern of who works in one namespace.
        let shown = match context.role {
            CallerRole::Operator => engine.inner.backends.all(),
            CallerRole::Tenant => &[],
        };
        for backend in shown {
            for (section, lines) in backend.facts() {
                facts.entry(section).or_default().extend(lines);
            }
        }
        Ok(Output { tiers, facts })
    }
}
