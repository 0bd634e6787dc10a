//! `status`: one sandbox in detail, or all of them at a glance.

use super::Handler;
use super::list::sandbox_brief;
use crate::context::CallContext;
use crate::engine::Engine;
use isle_api::ops::status::{Detail, Input, Line, Output, RunningRun, Status};
use isle_core::Result;

/// Sandboxes in an overview.
const GLANCE: usize = 100;

impl Handler for Status {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let Some(name) = input.sandbox else {
            let all = inner.fleet.named_in(&context.namespace);
            let sandboxes = all.iter().take(GLANCE).map(|sandbox| sandbox_brief(sandbox)).collect();
            return Ok(Output { sandboxes, total: all.len(), detail: None });
        };
        let address = context.address(&name);
        let sandbox = inner.fleet.get(&address).ok_or_else(|| inner.fleet.no_such_sandbox(&address))?;
        let usage = sandbox.usage().await.usage;
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
        Ok(Output { sandboxes: vec![sandbox_brief(&sandbox)], total: 1, detail: Some(detail) })
    }
}
