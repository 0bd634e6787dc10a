//! `stats`: what is counted and measured, the same facts that `/metrics` gives to Prometheus.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::metrics::Metric;

pub(super) struct Stats;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Only metrics whose names contain this, such as run.
    name: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    metrics: Vec<Metric>,
}

impl Operation for Stats {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "stats";
    const TITLE: &'static str = "Metrics";
    const DESCRIPTION: &'static str = "Counts and durations since the daemon started: runs by state, sandboxes, queue, denials, limits, the process itself.";
    const ROUTE: Route = Route { method: Method::Get, path: "/stats" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let mut metrics = engine.metrics(&context)?;
        if let Some(part) = input.name {
            metrics.retain(|metric| metric.name.contains(&part));
        }
        Ok(Output { metrics })
    }
}
