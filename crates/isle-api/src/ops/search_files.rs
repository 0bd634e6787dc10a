//! `search_files`: lines of files that match.

use crate::inputs::User;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `search_files`.
#[derive(Debug)]
pub struct SearchFiles;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    /// Regular expression, compared line by line.
    pub pattern: String,
    /// The pattern is plain text.
    pub literal: Option<bool>,
    pub ignore_case: Option<bool>,
    /// Directory or file, default /workspace.
    pub path: Option<GuestPath>,
    /// Only these files, such as "*.py" or "src/**/*.rs".
    pub glob: Option<String>,
    /// Lines shown around each match, at most 10.
    pub context: Option<u32>,
    /// Matches at most, default 100.
    pub limit: Option<u32>,
    /// Time to search, default 10s.
    pub timeout: Option<Span>,
    pub user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub matches: Vec<Found>,
    pub files_searched: u64,
    /// Files that hold no text or may not be read.
    pub files_skipped: u64,
    /// There is more than this.
    pub truncated: bool,
    /// What ended the search early: matches, bytes or time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<&'static str>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Found {
    /// Relative to the directory that was searched.
    pub path: String,
    pub line: u64,
    pub column: u64,
    pub text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The path's bytes when they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
}

impl Operation for SearchFiles {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "search_files";
    const TITLE: &'static str = "Search files";
    const DESCRIPTION: &'static str =
        "Find lines in files of a sandbox, as grep does. Binary files and .git are left out.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/files/search" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Reads;
}
