//! `copy_in`: a file or tree of the host into a sandbox.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{User, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::carry::{CarriedShape, HostRoots};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::values::{GuestPath, SandboxName};

pub(super) struct CopyIn;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: Option<SandboxName>,
    /// Absolute path of the host, below one of the configured host roots.
    host_path: String,
    /// Where to, exactly; default: its own name in /workspace. A directory is merged into one that is there.
    path: Option<GuestPath>,
    user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// Where it is now.
    path: String,
    #[serde(flatten)]
    carried: CarriedShape,
}

impl Operation for CopyIn {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "copy_in";
    const TITLE: &'static str = "Copy from the host";
    const DESCRIPTION: &'static str =
        "Copy a file or directory of the host into a sandbox. Links and special files are left out.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/files/copy_in" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;

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
        let sandbox = engine.inner.ensure(&context, &sandbox_or_default(input.sandbox)).await?;
        let user = input.user.unwrap_or_default().into();
        let carried = engine.copy_in(&context, &sandbox, &from, &path, user).await?;
        Ok(Output { path: path.absolute(), carried })
    }
}
