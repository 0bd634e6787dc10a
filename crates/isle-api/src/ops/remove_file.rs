//! `remove_file`: a file, or a tree.

use crate::inputs::User;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `remove_file`.
#[derive(Debug)]
pub struct RemoveFile;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// Relative to /workspace, or absolute.
    pub path: GuestPath,
    /// Directories too, with all they hold.
    pub recursive: Option<bool>,
    /// Whose rights count.
    pub user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// What is gone.
    pub removed: GuestPath,
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
}
