//! `sync_push` and `sync_pull`: a directory of a sandbox made like one of the host, and the other way
//! round, once.

use crate::carried::{ReviewMoreShape, ReviewShape, SkippedShape, is_zero};
use crate::inputs::{GitDirectories, User};
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// What was done.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct MirroredShape {
    /// In the sandbox.
    pub path: String,
    pub host_path: String,
    /// Sent.
    pub files: u64,
    /// Of the files sent.
    pub bytes: u64,
    /// The same already.
    pub unchanged: u64,
    /// Removed from the side that changed.
    pub removed: u64,
    /// Only on the side that changed, and left there.
    pub extra: u64,
    /// Left out by the patterns.
    pub excluded: u64,
    /// The patterns given.
    pub exclude: Vec<String>,
    pub git: bool,
    /// Neither file nor directory, or not readable: the first of them.
    pub skipped: Vec<String>,
    /// Git directories that were left out, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub git_directories: Vec<SkippedShape>,
    /// How many there are, when not all are named.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub git_directories_count: u64,
    /// Repositories that commits were fetched into.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<RepositoryShape>,
    /// Files that programs of the host run or obey by themselves, and files that have become executable:
    /// worth a look, the first of each kind, the most dangerous first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub review: Vec<ReviewShape>,
    /// How many there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub review_count: u64,
    /// Kinds of which there are more than are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub review_more: Vec<ReviewMoreShape>,
    pub dry_run: bool,
}

impl MirroredShape {
    /// Says how many git directories there are, when some are not named.
    pub fn count_git(&mut self, unnamed: u64) {
        let named = self.git_directories.len() as u64;
        self.git_directories_count = if unnamed > 0 { named + unnamed } else { 0 };
    }
}

/// What became of a repository of the host.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RepositoryShape {
    /// The directory that holds it, relative to the top.
    pub path: String,
    /// It was made; otherwise it was there and keeps its settings and hooks.
    pub created: bool,
    /// Branches and tags of the sandbox.
    pub refs: Vec<RefShape>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RefShape {
    /// Such as heads/main.
    pub name: String,
    pub outcome: OutcomeShape,
    /// Where it is found instead, when the host keeps its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found_at: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum OutcomeShape {
    Created,
    FastForwarded,
    UpToDate,
    Kept,
    Refused,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    /// Directory of the host: absolute, below one of the configured host roots.
    pub host_path: String,
    /// Directory of the sandbox, default /workspace.
    pub path: Option<GuestPath>,
    /// Patterns as in .gitignore.
    pub exclude: Option<Vec<String>>,
    /// With the .git directory; a pull fetches its commits and refs and nothing else of it.
    pub git: Option<bool>,
    /// Pull only: what becomes of other git directories, in which git runs programs. Copy includes .git.
    pub git_dirs: Option<GitDirectories>,
    /// With what .gitignore files leave out.
    pub ignored: Option<bool>,
    /// Remove what is only on the side that changes.
    pub delete: Option<bool>,
    /// Only say what would be done.
    pub dry_run: Option<bool>,
    pub user: Option<User>,
}

/// The operation `sync_push`.
#[derive(Debug)]
pub struct SyncPush;

impl Operation for SyncPush {
    type Input = Input;
    type Output = MirroredShape;
    const NAME: &'static str = "sync_push";
    const TITLE: &'static str = "Push a directory";
    const DESCRIPTION: &'static str = "Make a directory of a sandbox like one of the host: only what differs is sent. .gitignore counts, .git stays out unless git is set.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/sync/push" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;
}

/// The operation `sync_pull`.
#[derive(Debug)]
pub struct SyncPull;

impl Operation for SyncPull {
    type Input = Input;
    type Output = MirroredShape;
    const NAME: &'static str = "sync_pull";
    const TITLE: &'static str = "Pull a directory";
    const DESCRIPTION: &'static str = "Make a directory of the host like one of a sandbox: only what differs is sent. Its .gitignore counts. With git, commits and refs are fetched into the repository of the host.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/sync/pull" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;
}
