//! `stats`: what is counted and measured, the same facts that `/metrics` gives to Prometheus.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use isle_api::ops::stats::{Input, Output, Stats};
use isle_core::Result;

impl Handler for Stats {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let mut metrics = engine.metrics(&context)?;
        if let Some(part) = input.name {
            metrics.retain(|metric| metric.name.contains(&part));
        }
        Ok(Output { metrics })
    }
}
