//! `copy_out`: a file or tree of a sandbox to the host.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::files::carry::{HostRoots, Replace, git_dirs};
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::copy_out::{CopyOut, Input, Output};
use isle_core::Result;

impl Handler for CopyOut {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        context.operator_only("copying to the host's own directories")?;
        let to = HostRoots::new(&engine.inner.config.host_roots).find(&input.host_path)?;
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let user = input.user.unwrap_or_default().into();
        let replace = if input.replace.unwrap_or(false) { Replace::Yes } else { Replace::No };
        let how = (replace, git_dirs(input.git_dirs));
        let carried = engine.inner.copies.copy_out(&context, &sandbox, &input.path, &to, user, how).await?;
        Ok(Output { host_path: input.host_path, carried })
    }
}
