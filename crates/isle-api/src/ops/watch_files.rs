//! `watch_files`: what happened to files since the last look.

use crate::inputs::User;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FileEventKind {
    /// It is new.
    Created,
    /// Its contents, mode or owner changed.
    Modified,
    /// It is gone.
    Removed,
    /// It has another name now.
    Moved,
}

/// One thing that happened to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct FileEvent {
    /// What.
    pub kind: FileEventKind,
    /// Relative to what is watched.
    pub path: String,
    /// The name it had before a move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Whether it is a directory.
    pub directory: bool,
}

/// The operation `watch_files`.
#[derive(Debug)]
pub struct WatchFiles;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    /// Directory or file, default /workspace.
    pub path: Option<GuestPath>,
    /// Also what is in its directories; default true.
    pub recursive: Option<bool>,
    /// Of the answer before; none begins to watch.
    pub cursor: Option<String>,
    /// How long to wait for something to happen, default 0s.
    pub wait: Option<Span>,
    pub user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub events: Vec<FileEvent>,
    /// Pass it to the next call.
    pub cursor: String,
    /// More happened than is told: look at the files themselves.
    pub overflow: bool,
    /// Nothing more will come: what was watched, or the sandbox, is gone.
    pub ended: bool,
}

impl Operation for WatchFiles {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "watch_files";
    const TITLE: &'static str = "Watch files";
    const DESCRIPTION: &'static str = "What happened to files of a sandbox since the last look. The first call begins to watch and gives a cursor; later calls with it tell what was created, modified, removed or moved.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/files/watch" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Reads;
}
