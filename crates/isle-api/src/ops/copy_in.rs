//! `copy_in`: a file or tree of the host into a sandbox.

use crate::carried::CarriedShape;
use crate::inputs::User;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `copy_in`.
#[derive(Debug)]
pub struct CopyIn;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    /// Absolute path of the host, below one of the configured host roots.
    pub host_path: String,
    /// Where to, exactly; default: its own name in /workspace. A directory is merged into one that is there.
    pub path: Option<GuestPath>,
    pub user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// Where it is now.
    pub path: String,
    #[serde(flatten)]
    pub carried: CarriedShape,
}

impl Operation for CopyIn {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "copy_in";
    const TITLE: &'static str = "Copy from the host";
    const DESCRIPTION: &'static str =
        "Copy a file or directory of the host into a sandbox. Links and special files are left out.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/files/copy_in" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;
}
