//! `remove_file`: a file, or a tree.

use isle_fail::Point;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::inputs::{User, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::failpoint;
use crate::journal::Audit;
use crate::values::{GuestPath, SandboxName};

pub(super) struct RemoveFile;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    /// Relative to /workspace, or absolute.
    path: GuestPath,
    /// Directories too, with all they hold.
    recursive: Option<bool>,
    /// Whose rights count.
    user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// What is gone.
    removed: GuestPath,
}

impl Operation for RemoveFile {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "remove_file";
    const TITLE: &'static str = "Remove a file";
    const DESCRIPTION: &'static str = "Remove a file of a sandbox, or a tree when recursive.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/files/remove" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Destroys;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
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
