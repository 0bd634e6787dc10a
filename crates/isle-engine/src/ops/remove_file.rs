//! `remove_file`: a file, or a tree.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::failpoint;
use crate::journal::Audit;
use isle_api::Operation;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::remove_file::{Input, Output, RemoveFile};
use isle_core::Result;
use isle_fail::Point;
use serde_json::json;

impl Handler for RemoveFile {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let recursive = input.recursive.unwrap_or(false);
        let user = input.user.unwrap_or_default().into();
        sandbox.agent()?.remove(&input.path, user, recursive).await?;
        failpoint(Point::RemoveDone)?;
        let detail = json!({ "path": input.path, "recursive": recursive });
        let audit = Audit::files(&context, Self::NAME, &sandbox, detail);
        engine.inner.journal.audit(&audit).map_err(|error| error.unrecorded("the file was removed"))?;
        isle_fail::pass(Point::RemoveAudited);
        Ok(Output { removed: input.path })
    }
}
