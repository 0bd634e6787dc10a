//! `env`: variables of a sandbox that stay, seen by everything that starts in it from then on.

use crate::inputs::Environment;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::SandboxName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `env`.
#[derive(Debug)]
pub struct Env;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Action {
    /// Set `variables`.
    Set,
    /// Forget `names`.
    Unset,
    /// Show them.
    List,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    pub action: Action,
    /// For set: names and values.
    pub variables: Option<Environment>,
    /// For unset.
    pub names: Option<Vec<String>>,
}

/// One variable.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Variable {
    pub name: String,
    /// Only when listed, and not when the name looks like that of a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Whether the name looks like that of a secret; its value is not shown.
    pub looks_secret: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandbox: SandboxName,
    pub action: Action,
    /// Names whose value is another one now.
    pub changed: Vec<String>,
    /// All there are now.
    pub variables: Vec<Variable>,
    /// What should be known about them.
    pub warnings: Vec<String>,
}

impl Operation for Env {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "env";
    const TITLE: &'static str = "Variables of a sandbox";
    const DESCRIPTION: &'static str = "Set, unset or list variables of a sandbox. They stay, and every command, job and new context sees them.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/env" };
    const TOOLSET: Toolset = Toolset::Environment;
    const EFFECT: Effect = Effect::Idempotent;
}
