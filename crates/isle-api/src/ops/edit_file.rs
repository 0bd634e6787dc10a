//! `edit_file`: exact text replaced by other text.

use crate::inputs::User;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `edit_file`.
#[derive(Debug)]
pub struct EditFile;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    pub path: GuestPath,
    /// Made in this order, each on what the one before left: all of them, or none.
    pub edits: Vec<EditInput>,
    pub user: Option<User>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct EditInput {
    /// Text as it stands in the file; must be there exactly once.
    pub old: String,
    pub new: String,
    /// Replace it wherever it stands.
    pub replace_all: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub path: GuestPath,
    /// Replacements, per edit.
    pub replaced: Vec<u64>,
    /// Size of the file now.
    pub size: u64,
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
}
