//! `extend`: more time for a sandbox.

use super::Handler;
use super::list::sandbox_brief;
use crate::context::CallContext;
use crate::engine::Engine;
use isle_api::ops::extend::{Extend, Input};
use isle_api::ops::list::SandboxBrief;
use isle_core::Result;

impl Handler for Extend {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<SandboxBrief> {
        let sandbox = engine.inner.sandboxes.extend(&context, &input.sandbox, input.by).await?;
        Ok(sandbox_brief(&sandbox))
    }
}
