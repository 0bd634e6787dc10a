//! `status`: one sandbox in detail, or all of them at a glance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::list::SandboxBrief;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::{GuaranteeStatus, Limits, Usage};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::sync::SyncShape;
use crate::values::{RunId, SandboxName};

/// Sandboxes in an overview.
const GLANCE: usize = 100;

pub(super) struct Status;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Left out: all.
    sandbox: Option<SandboxName>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    sandboxes: Vec<SandboxBrief>,
    /// How many there are.
    total: usize,
    /// Of the sandbox asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Detail>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Detail {
    limits: Limits,
    usage: Usage,
    runs: Vec<RunningRun>,
    /// Directories that follow one of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    syncs: Vec<SyncShape>,
    /// What is enforced, line by line.
    containment: Vec<Line>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct RunningRun {
    run_id: RunId,
    command: String,
    elapsed_ms: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Line {
    key: String,
    status: GuaranteeStatus,
    how: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    fix: String,
}

impl Operation for Status {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "status";
    const TITLE: &'static str = "Status";
    const DESCRIPTION: &'static str =
        "All sandboxes, or one in detail: state, limits, usage, running runs, what is enforced.";
    const ROUTE: Route = Route { method: Method::Get, path: "/status" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let Some(name) = input.sandbox else {
            let all = inner.fleet.named_in(&context.namespace);
            let sandboxes = all.iter().take(GLANCE).map(|sandbox| SandboxBrief::of(sandbox)).collect();
            return Ok(Output { sandboxes, total: all.len(), detail: None });
        };
        let address = context.address(&name);
        let sandbox = inner.fleet.get(&address).ok_or_else(|| inner.no_such_sandbox(&address))?;
        let usage = inner.usage_of(&sandbox).await.usage;
        let runs = inner
            .runs
            .running_in(&sandbox.id)
            .iter()
            .take(GLANCE)
            .map(|run| RunningRun {
                run_id: run.id.clone(),
                command: run.command.chars().take(120).collect(),
                elapsed_ms: run.elapsed_ms(),
            })
            .collect();
        let containment = sandbox
            .containment()
            .map(|containment| containment.guarantees.iter())
            .into_iter()
            .flatten()
            .map(|guarantee| Line {
                key: guarantee.key.clone(),
                status: guarantee.status,
                how: guarantee.how.clone(),
                fix: guarantee.fix.clone(),
            })
            .collect();
        let syncs = inner.syncs.of(&address);
        let detail = Detail { limits: sandbox.spec.limits.clone(), usage, runs, syncs, containment };
        Ok(Output { sandboxes: vec![SandboxBrief::of(&sandbox)], total: 1, detail: Some(detail) })
    }
}
