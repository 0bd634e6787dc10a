//! `inspect`: what a sandbox holds and what goes on in it, without running anything.

use isle_store::RunFilter;
use isle_wire::CodeLanguage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::list::SandboxBrief;
use super::secrets::{AttachedShape, attached};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::Limits;
use crate::context::CallContext;
use crate::engine::{Engine, Inner};
use crate::error::Result;
use crate::run::looks_secret;
use crate::sandbox::{Sandbox, SandboxState};
use crate::sync::SyncShape;
use crate::values::{RunId, SandboxName};

/// Sandboxes in one answer, and runs of each.
const MOST: usize = 50;

pub(super) struct Inspect;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Left out: all.
    sandbox: Option<SandboxName>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Variable {
    name: String,
    /// `***` when the name looks like that of a secret.
    value: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct ContextBrief {
    name: String,
    /// python, node or shell.
    language: &'static str,
    alive: bool,
    calls: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Going {
    run_id: RunId,
    /// Its name among the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    command: String,
    elapsed_ms: u64,
    /// Waits for the lock of the sandbox.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    queued: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Inspected {
    /// With its deadlines.
    #[serde(flatten)]
    brief: SandboxBrief,
    limits: Limits,
    /// Set with `env`; what a call brings along is in its run.
    variables: Vec<Variable>,
    /// Secrets every command has; never values.
    secrets: Vec<AttachedShape>,
    contexts: Vec<ContextBrief>,
    /// Runs and jobs going on.
    running: Vec<Going>,
    /// Jobs on record, also those that ended.
    jobs: usize,
    syncs: Vec<SyncShape>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    sandboxes: Vec<Inspected>,
    /// How many there are.
    total: usize,
}

impl Operation for Inspect {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "inspect";
    const TITLE: &'static str = "Inspect sandboxes";
    const DESCRIPTION: &'static str = "What a sandbox holds: variables with secret values masked, contexts, runs and jobs going on, syncs, limits, deadlines. One sandbox, or all.";
    const ROUTE: Route = Route { method: Method::Get, path: "/inspect" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let all = inner.one_or_all(&context, input.sandbox.as_ref())?;
        let mut sandboxes = Vec::new();
        for sandbox in all.iter().take(MOST) {
            sandboxes.push(inspect(inner, sandbox).await?);
        }
        Ok(Output { sandboxes, total: all.len() })
    }
}

async fn inspect(inner: &Inner, sandbox: &Sandbox) -> Result<Inspected> {
    let address = sandbox.address();
    let variables = inner.variables.of(&address);
    let masked = |name: &str, value: &str| if looks_secret(name) { "***".into() } else { value.to_owned() };
    // One that died, or cannot answer now, has no interpreter anybody could use.
    let contexts = match sandbox.agent() {
        Ok(agent) if sandbox.state() == SandboxState::Running => agent.contexts().await.unwrap_or_default(),
        _ => Vec::new(),
    };
    let jobs = RunFilter {
        namespace: Some(address.namespace.to_string()),
        sandbox: Some(address.name.to_string()),
        kind: Some("job".into()),
        limit: 1000,
        ..RunFilter::default()
    };
    Ok(Inspected {
        brief: SandboxBrief::of(sandbox),
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
        jobs: inner.journal.runs(&jobs)?.len(),
        syncs: inner.syncs.of(&address),
    })
}
