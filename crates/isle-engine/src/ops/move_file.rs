//! `move_file`: a file or directory under another name.

use isle_fail::Point;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::inputs::{User, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::failpoint;
use crate::journal::Audit;
use crate::values::{GuestPath, SandboxName};

pub(super) struct MoveFile;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: Option<SandboxName>,
    from: GuestPath,
    /// Its new path; directories above it are made.
    to: GuestPath,
    /// Also when a file, or an empty directory, stands there.
    replace: Option<bool>,
    user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    from: GuestPath,
    to: GuestPath,
}

impl Operation for MoveFile {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "move_file";
    const TITLE: &'static str = "Move a file";
    const DESCRIPTION: &'static str = "Move or rename a file or directory of a sandbox.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/files/move" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let (from, to) = (input.from.absolute(), input.to.absolute());
        let (from, to) = (from.trim_end_matches('/'), to.trim_end_matches('/'));
        if to == from || to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            return Err(Error::new(Code::InvalidArgument, format!("{to:?} is {from:?} itself or below it"))
                .next("choose a place outside of what is moved"));
        }
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let user = input.user.unwrap_or_default().into();
        let replace = input.replace.unwrap_or(false);
        sandbox.agent()?.relocate(&input.from, &input.to, user, replace).await?;
        failpoint(Point::MoveDone)?;
        let detail = json!({ "from": input.from, "to": input.to, "replace": replace });
        let audit = Audit::files(&context, Self::NAME, &sandbox, detail);
        engine.inner.journal.audit(&audit).map_err(|error| error.unrecorded("the file was moved"))?;
        isle_fail::pass(Point::MoveAudited);
        Ok(Output { from: input.from, to: input.to })
    }
}
