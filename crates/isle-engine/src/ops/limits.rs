//! `limits`: defaults and ceilings, seen and changed.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::tuning::{Caps, Changes, InForce};

pub(super) struct Limits;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// In force from now on.
    now: InForce,
    /// In force before this call.
    before: InForce,
    /// What nothing is set above.
    caps: Caps,
}

impl Operation for Limits {
    type Input = Changes;
    type Output = Output;
    const NAME: &'static str = "limits";
    const TITLE: &'static str = "Defaults and ceilings";
    const DESCRIPTION: &'static str = "Show the limits of new sandboxes, the ceilings on sandboxes, the line and what is kept; change some. The next sandbox or run has them; they stay after a restart until reset.";
    const ROUTE: Route = Route { method: Method::Post, path: "/limits" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Idempotent;

    async fn call(engine: Engine, context: CallContext, input: Changes) -> Result<Output> {
        let (before, now) = engine.inner.change_limits(&context, &input)?;
        let (_, caps) = engine.inner.in_force();
        Ok(Output { now, before, caps })
    }
}
