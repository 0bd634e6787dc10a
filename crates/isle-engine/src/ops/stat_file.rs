//! `stat_file`: facts about a file.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::stat_file::{Input, Output, StatFile};
use isle_api::shapes::FileFacts;
use isle_core::Result;

impl Handler for StatFile {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let stat = sandbox.agent()?.stat(&input.path, input.user.unwrap_or_default().into()).await?;
        Ok(Output { path: input.path, facts: FileFacts::of(&stat) })
    }
}
