//! `git_clone`: a repository into a sandbox, by the sandbox's own git. A token goes to git through a
//! pipe that only its credential helper reads: it is in no file, no argument, no variable, no record
//! and no answer.

use crate::inputs::User;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, RunId, SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `git_clone`.
#[derive(Debug)]
pub struct GitClone;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    /// Such as https://host/owner/name.git; without a password in it.
    pub url: String,
    /// Where to, default the repository's name in /workspace.
    pub path: Option<GuestPath>,
    /// Branch or tag, default the repository's own.
    pub branch: Option<String>,
    /// Commits of history, default 1; 0 is all.
    pub depth: Option<u32>,
    /// Password or access token for an https URL. It is handed to git alone and kept nowhere.
    pub token: Option<String>,
    /// User name that goes with the token, default git.
    pub username: Option<String>,
    pub timeout: Option<Span>,
    pub user: Option<User>,
    /// What git may reach: "git" for the host of the URL, or hosts. The operator's.
    #[serde(default)]
    pub allow: Vec<String>,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the token.
        formatter.debug_struct("Input").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// Where it is now.
    pub path: String,
    /// Files that git tracks.
    pub files: u64,
    /// The branch that is checked out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The last commit; missing when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// The run that cloned it.
    pub run_id: RunId,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Commit {
    pub id: String,
    pub date: String,
    pub author: String,
    pub subject: String,
}

impl Operation for GitClone {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "git_clone";
    const TITLE: &'static str = "Clone a repository";
    const DESCRIPTION: &'static str = "Clone a git repository into a sandbox, by default only its last commit. Tells the commit and the number of files.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/files/git_clone" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;
}
