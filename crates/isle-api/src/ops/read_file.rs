//! `read_file`: a file, or a part of it.

use crate::inputs::User;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `read_file`.
#[derive(Debug)]
pub struct ReadFile;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    /// Relative to /workspace, or absolute.
    pub path: GuestPath,
    /// First byte.
    pub offset: Option<u64>,
    /// Bytes at most.
    pub limit: Option<u64>,
    /// Such as "10-20", in place of offset.
    pub lines: Option<String>,
    /// Default auto: text if it is UTF-8.
    pub encoding: Option<Encoding>,
    pub user: Option<User>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Encoding {
    #[default]
    Auto,
    Utf8,
    Base64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub path: GuestPath,
    pub content: String,
    /// utf8 or base64.
    pub encoding: &'static str,
    pub offset: u64,
    /// Size of the whole file.
    pub size: u64,
    /// Pass as offset for the rest; null at the end.
    pub next_offset: Option<u64>,
    /// Number of the first line, when lines were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_line: Option<u64>,
}

impl Operation for ReadFile {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "read_file";
    const TITLE: &'static str = "Read a file";
    const DESCRIPTION: &'static str = "Read a file of a sandbox. Large files come in pages.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/files/read" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Reads;
}
