//! `move_file`: a file or directory under another name.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::failpoint;
use crate::journal::Audit;
use isle_api::Operation;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::move_file::{Input, MoveFile, Output};
use isle_core::{Code, Error, Result};
use isle_fail::Point;
use serde_json::json;

impl Handler for MoveFile {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let (from, to) = (input.from.absolute(), input.to.absolute());
        let (from, to) = (from.trim_end_matches('/'), to.trim_end_matches('/'));
        if to == from || to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            return Err(Error::new(Code::InvalidArgument, format!("{to:?} is {from:?} itself or below it"))
                .next("choose a place outside of what is moved"));
        }
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
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
