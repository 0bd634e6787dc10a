//! Live syncs: `sync_start`, `sync_stop`, `sync_list`.

use crate::inputs::User;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a sync is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SyncState {
    /// The first full copy is under way.
    Starting,
    /// The host tells what changes.
    Watching,
    /// The host is looked at twice a second.
    Polling,
    /// The last round failed; it is tried again.
    Failing,
    /// It is over.
    Ended,
}

/// A sync as it is told.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SyncShape {
    /// Its name, for sync_stop.
    pub sync: String,
    pub sandbox: SandboxName,
    /// In the sandbox.
    pub path: String,
    pub host_path: String,
    pub state: SyncState,
    /// Rounds that sent or removed something.
    pub rounds: u64,
    pub files_sent: u64,
    pub bytes_sent: u64,
    pub removed: u64,
    pub started_at: String,
    /// When something was last sent or removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_change_at: Option<String>,
    /// What went wrong last, or why it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The operation `sync_start`.
#[derive(Debug)]
pub struct SyncStart;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartInput {
    pub sandbox: Option<SandboxName>,
    /// Directory of the host: absolute, below one of the configured host roots.
    pub host_path: String,
    /// Directory of the sandbox, default /workspace.
    pub path: Option<GuestPath>,
    /// Patterns as in .gitignore.
    pub exclude: Option<Vec<String>>,
    /// With the .git directory.
    pub git: Option<bool>,
    /// With what .gitignore files leave out.
    pub ignored: Option<bool>,
    /// Look for changes twice a second, for file systems that do not tell.
    pub poll: Option<bool>,
    pub user: Option<User>,
}

impl Operation for SyncStart {
    type Input = StartInput;
    type Output = SyncShape;
    const NAME: &'static str = "sync_start";
    const TITLE: &'static str = "Start a live sync";
    const DESCRIPTION: &'static str = "Copy a directory of the host into a sandbox and keep it in step: changes and removals on the host follow within a second. Files only in the sandbox stay.";
    const ROUTE: Route = Route { method: Method::Post, path: "/syncs" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;
}

/// The operation `sync_stop`.
#[derive(Debug)]
pub struct SyncStop;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopInput {
    /// Its name, as sync_start and sync_list tell it.
    pub sync: String,
}

impl Operation for SyncStop {
    type Input = StopInput;
    type Output = SyncShape;
    const NAME: &'static str = "sync_stop";
    const TITLE: &'static str = "Stop a live sync";
    const DESCRIPTION: &'static str = "End a live sync. What it copied stays in the sandbox.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/syncs/{sync}" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Idempotent;
}

/// The operation `sync_list`.
#[derive(Debug)]
pub struct SyncList;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListInput {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ListOutput {
    /// Also those that have ended, the last few.
    pub syncs: Vec<SyncShape>,
}

impl Operation for SyncList {
    type Input = ListInput;
    type Output = ListOutput;
    const NAME: &'static str = "sync_list";
    const TITLE: &'static str = "List live syncs";
    const DESCRIPTION: &'static str =
        "Live syncs with what they have sent and removed, and why some are over.";
    const ROUTE: Route = Route { method: Method::Get, path: "/syncs" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Reads;
}
