//! `limits`: defaults and ceilings, seen and changed.

use super::Handler;
use crate::context::{CallContext, CallerRole};
use crate::engine::Engine;
use isle_api::ops::limits::Changes;
use isle_api::ops::limits::{Limits, Output};
use isle_core::Result;

impl Handler for Limits {
    async fn call(engine: Engine, context: CallContext, input: Changes) -> Result<Output> {
        let (before, now) = engine.inner.tuning.change(&context, &input)?;
        let (_, caps) = engine.inner.tuning.in_force();
        let caps = (context.role == CallerRole::Operator).then_some(caps);
        Ok(Output { now, before, caps })
    }
}
