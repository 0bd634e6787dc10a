//! `inspect`: what a sandbox holds and what goes on in it, without running anything.

use super::Handler;
use super::list::sandbox_brief;
use super::secrets::attached;
use crate::context::CallContext;
use crate::engine::{Engine, Inner};
use crate::run::looks_secret;
use crate::sandbox::{Sandbox, SandboxState};
use isle_api::ops::inspect::{ContextBrief, Going, Input, Inspect, Inspected, Output, Variable};
use isle_core::Result;
use isle_wire::CodeLanguage;
use std::collections::HashMap;

/// Sandboxes in one answer, and runs of each.
const MOST: usize = 50;

impl Handler for Inspect {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let all = inner.fleet.one_or_all(&context, input.sandbox.as_ref())?;
        let namespace = context.namespace.to_string();
        let jobs = inner.journal.listed(&context, move |listing| listing.job_counts(&namespace)).await?;
        let mut sandboxes = Vec::new();
        for sandbox in all.iter().take(MOST) {
            sandboxes.push(inspect(inner, sandbox, &jobs).await?);
        }
        Ok(Output { sandboxes, total: all.len() })
    }
}

async fn inspect(inner: &Inner, sandbox: &Sandbox, jobs: &HashMap<String, usize>) -> Result<Inspected> {
    let address = sandbox.address();
    let variables = inner.variables.of(&address);
    let masked = |name: &str, value: &str| if looks_secret(name) { "***".into() } else { value.to_owned() };
    // One that died, or cannot answer now, has no interpreter anybody could use.
    let contexts = match sandbox.agent() {
        Ok(agent) if sandbox.state() == SandboxState::Running && !sandbox.is_unresponsive() => {
            agent.contexts().await.unwrap_or_default()
        }
        _ => Vec::new(),
    };
    Ok(Inspected {
        brief: sandbox_brief(sandbox),
        limits: sandbox.spec.limits.clone(),
        variables: variables
            .iter()
            .map(|(name, value)| Variable { name: name.clone(), value: masked(name, value) })
            .collect(),
        secrets: attached(inner, sandbox),
        contexts: contexts
            .into_iter()
            .map(|entry| ContextBrief {
                language: match entry.language {
                    CodeLanguage::Python => "python",
                    CodeLanguage::Node => "node",
                    CodeLanguage::Shell => "shell",
                },
                alive: entry.alive,
                calls: entry.calls,
                name: entry.name,
            })
            .collect(),
        running: inner
            .runs
            .running_in(&sandbox.id)
            .iter()
            .take(MOST)
            .map(|run| Going {
                run_id: run.id.clone(),
                job: run.job.as_ref().map(ToString::to_string),
                command: run.command.chars().take(120).collect(),
                elapsed_ms: run.elapsed_ms(),
                queued: run.is_queued(),
            })
            .collect(),
        jobs: jobs.get(address.name.as_str()).copied().unwrap_or(0),
        syncs: inner.syncs.of(&address),
    })
}
