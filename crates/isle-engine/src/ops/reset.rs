//! `reset`: a sandbox made anew. What was written outside its workspace goes, and all that runs in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::values::{SandboxId, SandboxName};

pub(super) struct Reset;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: SandboxName,
    /// Also empty /workspace.
    #[serde(default)]
    wipe: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    sandbox: SandboxName,
    /// Another one than before.
    id: SandboxId,
    /// What stayed.
    kept: &'static [&'static str],
}

impl Operation for Reset {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "reset";
    const TITLE: &'static str = "Reset a sandbox";
    const DESCRIPTION: &'static str = "Make a sandbox anew: all that runs in it ends, everything outside /workspace goes, installed packages too. /workspace, variables and package caches stay; with wipe, /workspace is emptied too.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/reset" };
    const TOOLSET: Toolset = Toolset::Environment;
    const EFFECT: Effect = Effect::Destroys;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let sandbox = engine.inner.reset(&context, &input.sandbox, input.wipe).await?;
        let all = &["workspace", "variables", "package caches"];
        let kept = if input.wipe { &all[1..] } else { all };
        Ok(Output { sandbox: input.sandbox, id: sandbox.id.clone(), kept })
    }
}
