//! `destroy`: a sandbox and everything that runs in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::Keep;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::values::SandboxName;

pub(super) struct Destroy;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: SandboxName,
    /// Also delete /workspace.
    wipe: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    sandbox: SandboxName,
    /// kept or wiped.
    workspace: &'static str,
}

impl Operation for Destroy {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "destroy";
    const TITLE: &'static str = "Destroy a sandbox";
    const DESCRIPTION: &'static str =
        "Destroy a sandbox and all that runs in it. /workspace stays for the next of that name unless wipe.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/sandboxes/{sandbox}" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Destroys;

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
        engine.inner.destroy(&context, &input.sandbox, keep).await?;
        Ok(Output { sandbox: input.sandbox, workspace })
    }
}
