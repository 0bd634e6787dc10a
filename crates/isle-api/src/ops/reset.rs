//! `reset`: a sandbox made anew. What was written outside its workspace goes, and all that runs in it.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{SandboxId, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `reset`.
#[derive(Debug)]
pub struct Reset;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: SandboxName,
    /// Also empty /workspace.
    #[serde(default)]
    pub wipe: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandbox: SandboxName,
    /// Another one than before.
    pub id: SandboxId,
    /// What stayed.
    pub kept: &'static [&'static str],
}

impl Operation for Reset {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "reset";
    const TITLE: &'static str = "Reset a sandbox";
    const DESCRIPTION: &'static str = "Make a sandbox anew: all that runs in it ends, everything outside /workspace goes, installed packages too. /workspace, variables and package caches stay; with wipe, /workspace is emptied too.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/reset" };
    const TOOLSET: Toolset = Toolset::Environment;
    const EFFECT: Effect = Effect::Destroys;
}
