//! Contexts: which there are, and what can be done to one. `run_code` makes them.

use std::sync::Arc;

use isle_wire::{CodeLanguage, ContextAction, GuestUser};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use crate::values::{ContextName, RunId, SandboxName};

/// Which sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxInput {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
}

/// Which context.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ContextInput {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    context: ContextName,
}

/// The contexts of a sandbox.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Contexts {
    sandbox: SandboxName,
    contexts: Vec<ContextShape>,
}

/// A context.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct ContextShape {
    name: String,
    /// python, node or shell.
    language: &'static str,
    /// As whom: sandbox or root.
    user: &'static str,
    /// The run going on in it.
    run_id: Option<RunId>,
    /// Whether its interpreter is alive; if not, the next call starts one.
    alive: bool,
    /// Calls so far.
    calls: u64,
    age_ms: u64,
}

/// What was done to a context.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Done {
    sandbox: SandboxName,
    context: ContextName,
}

fn sandbox_of(engine: &Engine, context: &CallContext, name: Option<SandboxName>) -> Result<Arc<Sandbox>> {
    let address = context.address(&super::inputs::sandbox_or_default(name));
    engine.inner.fleet.get(&address).ok_or_else(|| engine.inner.no_such_sandbox(&address))
}

async fn act(
    engine: &Engine,
    context: &CallContext,
    input: ContextInput,
    action: ContextAction,
    name: &str,
) -> Result<Done> {
    let sandbox = sandbox_of(engine, context, input.sandbox)?;
    engine.inner.awake(context, &sandbox, false).await?;
    sandbox.agent()?.act_on_context(&input.context, action).await?;
    let detail = json!({ "context": input.context });
    let audit = Audit::files(context, name, &sandbox, detail);
    engine.inner.journal.audit(&audit).map_err(|error| error.unrecorded("it was done to the context"))?;
    Ok(Done { sandbox: sandbox.name.clone(), context: input.context })
}

pub(super) struct ListContexts;

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

    async fn call(engine: Engine, context: CallContext, input: SandboxInput) -> Result<Contexts> {
        let sandbox = sandbox_of(&engine, &context, input.sandbox)?;
        let contexts = sandbox.agent()?.contexts().await?;
        let shape = |entry: isle_wire::ContextEntry| ContextShape {
            language: match entry.language {
                CodeLanguage::Python => "python",
                CodeLanguage::Node => "node",
                CodeLanguage::Shell => "shell",
            },
            user: match entry.user {
                GuestUser::Sandbox => "sandbox",
                GuestUser::Root => "root",
            },
            run_id: entry.run.and_then(|run| run.parse().ok()),
            alive: entry.alive,
            calls: entry.calls,
            age_ms: entry.age_ms,
            name: entry.name,
        };
        Ok(Contexts { sandbox: sandbox.name.clone(), contexts: contexts.into_iter().map(shape).collect() })
    }
}

pub(super) struct InterruptContext;

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

    async fn call(engine: Engine, context: CallContext, input: ContextInput) -> Result<Done> {
        act(&engine, &context, input, ContextAction::Interrupt, Self::NAME).await
    }
}

pub(super) struct RestartContext;

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

    async fn call(engine: Engine, context: CallContext, input: ContextInput) -> Result<Done> {
        act(&engine, &context, input, ContextAction::Restart, Self::NAME).await
    }
}

pub(super) struct RemoveContext;

impl Operation for RemoveContext {
    type Input = ContextInput;
    type Output = Done;
    const NAME: &'static str = "remove_context";
    const TITLE: &'static str = "Remove a context";
    const DESCRIPTION: &'static str = "Remove a context with its interpreter and all it started. Files stay.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/sandboxes/{sandbox}/contexts/{context}" };
    const TOOLSET: Toolset = Toolset::Contexts;
    const EFFECT: Effect = Effect::Destroys;

    async fn call(engine: Engine, context: CallContext, input: ContextInput) -> Result<Done> {
        act(&engine, &context, input, ContextAction::Remove, Self::NAME).await
    }
}
