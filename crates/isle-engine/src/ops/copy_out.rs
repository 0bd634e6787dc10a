//! `copy_out`: a file or tree of a sandbox to the host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{User, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::carry::{CarriedShape, HostRoots, Replace};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::values::{GuestPath, SandboxName};

pub(super) struct CopyOut;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: Option<SandboxName>,
    /// File or directory of the sandbox.
    path: GuestPath,
    /// Where to, exactly: an absolute path of the host, below one of the configured host roots.
    host_path: String,
    /// Replace the file, or merge into the directory, that is there.
    replace: Option<bool>,
    user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    host_path: String,
    #[serde(flatten)]
    carried: CarriedShape,
}

impl Operation for CopyOut {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "copy_out";
    const TITLE: &'static str = "Copy to the host";
    const DESCRIPTION: &'static str =
        "Copy a file or directory of a sandbox to the host. Links and special files are left out.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/files/copy_out" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        context.operator_only("copying to the host's own directories")?;
        let to = HostRoots::new(&engine.inner.config.host_roots).find(&input.host_path)?;
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let user = input.user.unwrap_or_default().into();
        let replace = if input.replace.unwrap_or(false) { Replace::Yes } else { Replace::No };
        let carried = engine.copy_out(&context, &sandbox, &input.path, &to, user, replace).await?;
        Ok(Output { host_path: input.host_path, carried })
    }
}
