//! `move_file`: a file or directory under another name.

use crate::inputs::User;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `move_file`.
#[derive(Debug)]
pub struct MoveFile;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    pub from: GuestPath,
    /// Its new path; directories above it are made.
    pub to: GuestPath,
    /// Also when a file, or an empty directory, stands there.
    pub replace: Option<bool>,
    pub user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub from: GuestPath,
    pub to: GuestPath,
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
}
