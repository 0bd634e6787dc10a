//! `edit_file`: exact text replaced by other text.

use super::Handler;
use crate::agent::path_request;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::failpoint;
use crate::journal::Audit;
use isle_api::Operation;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::edit_file::{EditFile, Input, Output};
use isle_core::{Code, Error, Result};
use isle_fail::Point;
use isle_wire::{Edit, EditRequest};
use serde_json::json;

/// Edits in one call.
const MOST: usize = 200;

impl Handler for EditFile {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let refuse = |what: String, next: &str| Err(Error::new(Code::InvalidArgument, what).next(next));
        if input.edits.is_empty() || input.edits.len() > MOST {
            return refuse(format!("edits holds {} edits", input.edits.len()), "give 1 to 200 edits");
        }
        for (index, edit) in input.edits.iter().enumerate() {
            if edit.old.is_empty() {
                let next = "give the text that is to be replaced; write_files writes a whole file";
                return refuse(format!("old of edit {index} is empty"), next);
            }
            if edit.old == edit.new {
                return refuse(format!("old and new of edit {index} are the same"), "leave this edit out");
            }
        }
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let user = input.user.unwrap_or_default().into();
        let edits: Vec<Edit> = input
            .edits
            .into_iter()
            .map(|edit| Edit {
                old: edit.old.into_bytes().into(),
                new: edit.new.into_bytes().into(),
                all: edit.replace_all.unwrap_or(false),
            })
            .collect();
        let largest = engine.inner.config.file_cap.0;
        let request = EditRequest { at: path_request(&input.path, user), edits, largest };
        let edited = sandbox.agent()?.edit(&input.path, request).await?;
        failpoint(Point::EditDone)?;
        let detail = json!({ "path": input.path, "replaced": edited.replaced, "size": edited.size });
        let audit = Audit::files(&context, Self::NAME, &sandbox, detail);
        engine.inner.journal.audit(&audit).map_err(|error| error.unrecorded("the file was edited"))?;
        isle_fail::pass(Point::EditAudited);
        Ok(Output { path: input.path, replaced: edited.replaced, size: edited.size })
    }
}
