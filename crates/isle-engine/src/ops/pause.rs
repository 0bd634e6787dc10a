//! `pause` and `resume`: everything in a sandbox stands still, and goes on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::sandbox::Stood;
use crate::values::{SandboxId, SandboxName};

pub(super) struct Pause;
pub(super) struct Resume;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: SandboxName,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    sandbox: SandboxName,
    id: SandboxId,
    /// paused or running; already_paused or already_running when nothing had to be done.
    state: &'static str,
    /// How many processes stopped, or go on.
    processes: u64,
}

impl Output {
    fn of(stood: &Stood, done: &'static str, already: &'static str) -> Self {
        Self {
            sandbox: stood.sandbox.name.clone(),
            id: stood.sandbox.id.clone(),
            state: if stood.processes.is_some() { done } else { already },
            processes: stood.processes.unwrap_or(0),
        }
    }
}

impl Operation for Pause {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "pause";
    const TITLE: &'static str = "Pause a sandbox";
    const DESCRIPTION: &'static str = "Stop everything that runs in a sandbox, jobs and contexts too, until resume. It keeps its memory; its files can be used meanwhile; its TTL goes on.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/pause" };
    const TOOLSET: Toolset = Toolset::Lifecycle;
    const EFFECT: Effect = Effect::Idempotent;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let stood = engine.inner.pause(&context, &input.sandbox).await?;
        Ok(Output::of(&stood, "paused", "already_paused"))
    }
}

impl Operation for Resume {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "resume";
    const TITLE: &'static str = "Resume a sandbox";
    const DESCRIPTION: &'static str = "Let everything in a paused sandbox go on where it stood.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/resume" };
    const TOOLSET: Toolset = Toolset::Lifecycle;
    const EFFECT: Effect = Effect::Idempotent;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let stood = engine.inner.resume(&context, &input.sandbox).await?;
        Ok(Output::of(&stood, "running", "already_running"))
    }
}
