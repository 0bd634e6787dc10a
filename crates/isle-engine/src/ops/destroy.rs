//! `destroy`: a sandbox and everything that runs in it.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use isle_api::ops::destroy::{Destroy, Input, Output};
use isle_core::Result;
use isle_core::backend::Keep;

impl Handler for Destroy {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let (keep, workspace) =
            if input.wipe.unwrap_or(false) { (Keep::Nothing, "wiped") } else { (Keep::Workspace, "kept") };
        // A child's workspace always goes with it.
        let child = engine
            .inner
            .fleet
            .get(&context.address(&input.sandbox))
            .is_some_and(|known| known.spec.child.is_some());
        let workspace = if child { "wiped" } else { workspace };
        engine.inner.sandboxes.destroy(&context, &input.sandbox, keep).await?;
        Ok(Output { sandbox: input.sandbox, workspace })
    }
}
