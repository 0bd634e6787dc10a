//! `reset`: a sandbox made anew. What was written outside its workspace goes, and all that runs in it.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use isle_api::ops::reset::{Input, Output, Reset};
use isle_core::Result;

impl Handler for Reset {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let sandbox = engine.inner.sandboxes.reset(&context, &input.sandbox, input.wipe).await?;
        let all = &["workspace", "variables", "package caches"];
        let kept = if input.wipe { &all[1..] } else { all };
        Ok(Output { sandbox: input.sandbox, id: sandbox.id.clone(), kept })
    }
}
