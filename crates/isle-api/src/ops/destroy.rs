//! `destroy`: a sandbox and everything that runs in it.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::SandboxName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `destroy`.
#[derive(Debug)]
pub struct Destroy;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: SandboxName,
    /// Also delete /workspace.
    pub wipe: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandbox: SandboxName,
    /// kept or wiped.
    pub workspace: &'static str,
}

impl Operation for Destroy {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "destroy";
    const TITLE: &'static str = "Destroy a sandbox";
    const DESCRIPTION: &'static str =
        "Destroy a sandbox and all that runs in it. /workspace stays for the next of that name unless wipe.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/sandboxes/{sandbox}" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Destroys;
}
