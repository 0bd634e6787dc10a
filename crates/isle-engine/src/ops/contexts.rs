//! Contexts: which there are, and what can be done to one. `run_code` makes them.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use isle_api::Operation;
use isle_api::ops::contexts::{
    ContextInput, ContextShape, Contexts, Done, InterruptContext, ListContexts, RemoveContext,
    RestartContext, SandboxInput,
};
use isle_core::Result;
use isle_core::values::SandboxName;
use isle_wire::{CodeLanguage, ContextAction, GuestUser};
use serde_json::json;
use std::sync::Arc;

fn sandbox_of(engine: &Engine, context: &CallContext, name: Option<SandboxName>) -> Result<Arc<Sandbox>> {
    let address = context.address(&isle_api::inputs::sandbox_or_default(name));
    engine.inner.fleet.get(&address).ok_or_else(|| engine.inner.fleet.no_such_sandbox(&address))
}

async fn act(
    engine: &Engine,
    context: &CallContext,
    input: ContextInput,
    action: ContextAction,
    name: &str,
) -> Result<Done> {
    let sandbox = sandbox_of(engine, context, input.sandbox)?;
    engine.inner.sandboxes.awake(context, &sandbox, false).await?;
    sandbox.agent()?.act_on_context(&input.context, action).await?;
    let detail = json!({ "context": input.context });
    let audit = Audit::files(context, name, &sandbox, detail);
    engine.inner.journal.audit(&audit).map_err(|error| error.unrecorded("it was done to the context"))?;
    Ok(Done { sandbox: sandbox.name.clone(), context: input.context })
}

impl Handler for ListContexts {
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

impl Handler for InterruptContext {
    async fn call(engine: Engine, context: CallContext, input: ContextInput) -> Result<Done> {
        act(&engine, &context, input, ContextAction::Interrupt, Self::NAME).await
    }
}

impl Handler for RestartContext {
    async fn call(engine: Engine, context: CallContext, input: ContextInput) -> Result<Done> {
        act(&engine, &context, input, ContextAction::Restart, Self::NAME).await
    }
}

impl Handler for RemoveContext {
    async fn call(engine: Engine, context: CallContext, input: ContextInput) -> Result<Done> {
        act(&engine, &context, input, ContextAction::Remove, Self::NAME).await
    }
}
