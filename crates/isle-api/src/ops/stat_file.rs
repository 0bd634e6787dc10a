//! `stat_file`: facts about a file.

use crate::inputs::User;
use crate::shapes::FileFacts;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `stat_file`.
#[derive(Debug)]
pub struct StatFile;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// Relative to /workspace, or absolute.
    pub path: GuestPath,
    /// Whose rights count.
    pub user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// The path as given.
    pub path: GuestPath,
    /// Facts about the file.
    #[serde(flatten)]
    pub facts: FileFacts,
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
}
