//! `copy_out`: a file or tree of a sandbox to the host.

use crate::carried::CarriedShape;
use crate::inputs::{GitDirectories, User};
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `copy_out`.
#[derive(Debug)]
pub struct CopyOut;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    /// File or directory of the sandbox.
    pub path: GuestPath,
    /// Where to, exactly: an absolute path of the host, below one of the configured host roots.
    pub host_path: String,
    /// Replace the file, or merge into the directory, that is there.
    pub replace: Option<bool>,
    /// What becomes of git directories, in which git runs programs: skip, unless the sandbox is trusted.
    pub git_dirs: Option<GitDirectories>,
    pub user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub host_path: String,
    #[serde(flatten)]
    pub carried: CarriedShape,
}

impl Operation for CopyOut {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "copy_out";
    const TITLE: &'static str = "Copy to the host";
    const DESCRIPTION: &'static str = "Copy a file or directory of a sandbox to the host. Links, special files and git directories are left out; review names files that run by themselves.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/files/copy_out" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;
}
