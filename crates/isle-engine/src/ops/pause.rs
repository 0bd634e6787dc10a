//! `pause` and `resume`: everything in a sandbox stands still, and goes on.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::sandbox::Stood;
use isle_api::ops::pause::{Input, Output, Pause, Resume};
use isle_core::Result;

fn output(stood: &Stood, done: &'static str, already: &'static str) -> Output {
    Output {
        sandbox: stood.sandbox.name.clone(),
        id: stood.sandbox.id.clone(),
        state: if stood.processes.is_some() { done } else { already },
        processes: stood.processes.unwrap_or(0),
    }
}

impl Handler for Pause {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let stood = engine.inner.sandboxes.pause(&context, &input.sandbox).await?;
        Ok(output(&stood, "paused", "already_paused"))
    }
}

impl Handler for Resume {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let stood = engine.inner.sandboxes.resume(&context, &input.sandbox).await?;
        Ok(output(&stood, "running", "already_running"))
    }
}
