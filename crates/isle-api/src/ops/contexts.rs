//! Contexts: which there are, and what can be done to one. `run_code` makes them.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{ContextName, RunId, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxInput {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
}

/// Which context.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextInput {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    pub context: ContextName,
}

/// The contexts of a sandbox.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Contexts {
    pub sandbox: SandboxName,
    pub contexts: Vec<ContextShape>,
}

/// A context.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ContextShape {
    pub name: String,
    /// python, node or shell.
    pub language: &'static str,
    /// As whom: sandbox or root.
    pub user: &'static str,
    /// The run going on in it.
    pub run_id: Option<RunId>,
    /// Whether its interpreter is alive; if not, the next call starts one.
    pub alive: bool,
    /// Calls so far.
    pub calls: u64,
    pub age_ms: u64,
}

/// What was done to a context.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Done {
    pub sandbox: SandboxName,
    pub context: ContextName,
}

/// The operation `list_contexts`.
#[derive(Debug)]
pub struct ListContexts;

impl Operation for ListContexts {
    type Input = SandboxInput;
    type Output = Contexts;
    const NAME: &'static str = "list_contexts";
    const TITLE: &'static str = "List contexts";
    const DESCRIPTION: &'static str =
        "The contexts of a sandbox: interpreters that remember, made by run_code.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/contexts" };
    const TOOLSET: Toolset = Toolset::Contexts;
    const EFFECT: Effect = Effect::Reads;
}

/// The operation `interrupt_context`.
#[derive(Debug)]
pub struct InterruptContext;

impl Operation for InterruptContext {
    type Input = ContextInput;
    type Output = Done;
    const NAME: &'static str = "interrupt_context";
    const TITLE: &'static str = "Interrupt a context";
    const DESCRIPTION: &'static str = "Interrupt what runs in a context, as Ctrl-C does. The context lives on with its variables; the run ends with an exception.";
    const ROUTE: Route =
        Route { method: Method::Post, path: "/sandboxes/{sandbox}/contexts/{context}/interrupt" };
    const TOOLSET: Toolset = Toolset::Contexts;
    const EFFECT: Effect = Effect::Changes;
}

/// The operation `restart_context`.
#[derive(Debug)]
pub struct RestartContext;

impl Operation for RestartContext {
    type Input = ContextInput;
    type Output = Done;
    const NAME: &'static str = "restart_context";
    const TITLE: &'static str = "Restart a context";
    const DESCRIPTION: &'static str = "End the interpreter of a context with all it started; the next call in it starts with nothing. Files stay.";
    const ROUTE: Route =
        Route { method: Method::Post, path: "/sandboxes/{sandbox}/contexts/{context}/restart" };
    const TOOLSET: Toolset = Toolset::Contexts;
    const EFFECT: Effect = Effect::Destroys;
}

/// The operation `remove_context`.
#[derive(Debug)]
pub struct RemoveContext;

impl Operation for RemoveContext {
    type Input = ContextInput;
    type Output = Done;
    const NAME: &'static str = "remove_context";
    const TITLE: &'static str = "Remove a context";
    const DESCRIPTION: &'static str = "Remove a context with its interpreter and all it started. Files stay.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/sandboxes/{sandbox}/contexts/{context}" };
    const TOOLSET: Toolset = Toolset::Contexts;
    const EFFECT: Effect = Effect::Destroys;
}
