//! `copy_in`: a file or tree of the host into a sandbox.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::files::carry::HostRoots;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::copy_in::{CopyIn, Input, Output};
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};

impl Handler for CopyIn {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        context.operator_only("copying from the host's own directories")?;
        let from = HostRoots::new(&engine.inner.config.host_roots).find(&input.host_path)?;
        // Looked at before a sandbox is made for nothing.
        from.open()?;
        let path: GuestPath = match (input.path, from.name()) {
            (Some(path), _) => path,
            (None, Some(name)) => name.parse()?,
            (None, None) => {
                return Err(Error::new(Code::InvalidArgument, "the host path has no name that is text")
                    .next("say with path where it is to go"));
            }
        };
        let sandbox = engine.inner.sandboxes.ensure(&context, &sandbox_or_default(input.sandbox)).await?;
        let user = input.user.unwrap_or_default().into();
        let carried = engine.inner.copies.copy_in(&context, &sandbox, &from, &path, user).await?;
        Ok(Output { path: path.absolute(), carried })
    }
}
