//! `stat_file`: facts about a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{User, sandbox_or_default};
use super::shapes::FileFacts;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::values::{GuestPath, SandboxName};

pub(super) struct StatFile;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    /// Relative to /workspace, or absolute.
    path: GuestPath,
    /// Whose rights count.
    user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// The path as given.
    path: GuestPath,
    /// Facts about the file.
    #[serde(flatten)]
    facts: FileFacts,
}

impl Operation for StatFile {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "stat_file";
    const TITLE: &'static str = "Facts about a file";
    const DESCRIPTION: &'static str = "Kind, size, mode, owner and time of a file of a sandbox.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/files/stat" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let stat = sandbox.agent()?.stat(&input.path, input.user.unwrap_or_default().into()).await?;
        Ok(Output { path: input.path, facts: FileFacts::of(&stat) })
    }
}
