//! `list_files`: what a directory holds.

use crate::inputs::User;
use crate::shapes::KindName;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `list_files`.
#[derive(Debug)]
pub struct ListFiles;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    /// Default /workspace.
    pub path: Option<GuestPath>,
    /// Levels down, default 1.
    pub depth: Option<u32>,
    /// Entries at most, default 200.
    pub limit: Option<u32>,
    /// Such as "*.py"; at any depth.
    pub glob: Option<String>,
    pub user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub path: String,
    pub entries: Vec<Listed>,
    /// There are more than limit.
    pub truncated: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Listed {
    pub path: String,
    pub kind: KindName,
    pub size: u64,
    pub mode: String,
    pub modified: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The name's bytes when they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
}

impl Operation for ListFiles {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "list_files";
    const TITLE: &'static str = "List files";
    const DESCRIPTION: &'static str = "List a directory of a sandbox.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/files/list" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Reads;
}
