//! `edit_file`: exact text replaced by other text.

use isle_fail::Point;
use isle_wire::{Edit, EditRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::inputs::{User, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::agent::path_request;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::failpoint;
use crate::journal::Audit;
use crate::values::{GuestPath, SandboxName};

/// Edits in one call.
const MOST: usize = 200;

pub(super) struct EditFile;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: Option<SandboxName>,
    path: GuestPath,
    /// Made in this order, each on what the one before left: all of them, or none.
    edits: Vec<EditInput>,
    user: Option<User>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct EditInput {
    /// Text as it stands in the file; must be there exactly once.
    old: String,
    new: String,
    /// Replace it wherever it stands.
    replace_all: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    path: GuestPath,
    /// Replacements, per edit.
    replaced: Vec<u64>,
    /// Size of the file now.
    size: u64,
}

impl Operation for EditFile {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "edit_file";
    const TITLE: &'static str = "Edit a file";
    const DESCRIPTION: &'static str = "Replace exact text in a file of a sandbox. Fails and changes nothing when a text is missing or not unique.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/files/edit" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;

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
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
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
