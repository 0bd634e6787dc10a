//! A run as it is answered: the same shape whether it is going on, ended a moment ago, or comes
//! from the store.

use std::sync::Arc;

use isle_store::RunRow;
use serde::{Deserialize, Serialize};

use super::output::KeptOutput;
use super::{CodeOutcome, Run, Runs};
use crate::context::{CallContext, Door};
use crate::engine::EngineConfig;
use crate::journal::state_from;
use crate::sandbox::Sandbox;
use isle_api::shapes::{CommandRecord, LimitHit, RunResult, RunState, ViolationShape};
use isle_core::backend::{GuaranteeStatus, Tier};
use isle_core::values::{ByteSize, RunId, RunOrJob, SandboxName};
use isle_core::{Code, Error, Result};

/// Bytes of output, as JSON, in an answer a model reads.
const ANSWER: usize = 24_000;

/// How much output an answer may hold. A model's context is not to be flooded; other callers may
/// ask for all that is kept.
pub(crate) fn answer_budget(wanted: Option<(ByteSize, &CallContext)>, config: &EngineConfig) -> usize {
    match wanted {
        None => ANSWER,
        Some((wanted, context)) => {
            let most = match context.door {
                Door::Mcp => ANSWER as u64,
                // What is kept of two streams, each byte at its dearest in JSON.
                Door::Http | Door::Cli | Door::Library | Door::Guest => config.output_cap.0.saturating_mul(2),
            };
            usize::try_from(wanted.0.min(most)).unwrap_or(ANSWER)
        }
    }
}

/// What held while a run ran.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Enforcement {
    tier: Tier,
    /// Keys of its containment report that did not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    not_enforced: Vec<String>,
}

impl Enforcement {
    pub(crate) fn of(sandbox: &Sandbox) -> Self {
        let lines = sandbox.containment().map(|report| report.guarantees.as_slice()).unwrap_or_default();
        let missing = lines.iter().filter(|line| line.status == GuaranteeStatus::Missing);
        Self { tier: sandbox.spec.tier, not_enforced: missing.map(|line| line.key.clone()).collect() }
    }
}

/// A consistent picture of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunSnapshot {
    pub(crate) id: RunId,
    pub(crate) sandbox: SandboxName,
    pub(crate) state: RunState,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) duration_ms: u64,
    pub(crate) violations: Vec<ViolationShape>,
    pub(crate) limits_hit: Vec<LimitHit>,
    pub(crate) note: Option<String>,
    pub(crate) held: Option<Enforcement>,
    pub(crate) stdout: KeptOutput,
    pub(crate) stderr: KeptOutput,
    pub(crate) code: Option<Arc<CodeOutcome>>,
    pub(crate) commands: Vec<CommandRecord>,
}

impl RunSnapshot {
    /// The answer, with at most `budget` bytes of output.
    pub(crate) fn result(self, budget: usize) -> RunResult {
        let (for_stdout, for_stderr) = self.shares(budget);
        let id = self.id.as_str();
        let stdout = self.stdout.cut(for_stdout, id, "stdout");
        let stderr = self.stderr.cut(for_stderr, id, "stderr");
        let (tier, not_enforced) =
            self.held.map_or((None, Vec::new()), |held| (Some(held.tier), held.not_enforced));
        let code = self.code.as_deref();
        RunResult {
            context: code.and_then(|code| code.context.clone()),
            results: code.map(|code| code.results_within(budget)).unwrap_or_default(),
            error: code.and_then(|code| code.error.clone()),
            sandbox: self.sandbox,
            tier,
            not_enforced,
            state: self.state,
            exit_code: self.exit_code,
            signal: self.signal,
            stdout: stdout.text,
            stderr: stderr.text,
            duration_ms: self.duration_ms,
            stdout_truncated: stdout.truncated,
            stderr_truncated: stderr.truncated,
            stdout_bytes: self.stdout.total,
            stderr_bytes: self.stderr.total,
            violations: self.violations,
            limits_hit: self.limits_hit,
            note: self.note,
            commands: self.commands,
            run_id: self.id,
        }
    }

    /// Half for each, and what one does not need goes to the other.
    pub(crate) fn shares(&self, budget: usize) -> (usize, usize) {
        let half = budget / 2;
        match (self.stdout.cost_within(half), self.stderr.cost_within(half)) {
            (Some(used), _) => (used, budget - used),
            (None, Some(used)) => (budget - used, used),
            (None, None) => (half, half),
        }
    }
}

impl Runs {
    /// The run as it is now.
    pub(crate) fn snapshot_of(&self, run: &Arc<Run>) -> RunSnapshot {
        // The end first: output seen after it is complete.
        let finish = run.finish();
        let (stdout, stderr) = run.kept();
        let base = RunSnapshot {
            id: run.id.clone(),
            sandbox: run.sandbox_name().clone(),
            state: if run.is_queued() { RunState::Queued } else { RunState::Running },
            exit_code: None,
            signal: None,
            duration_ms: run.elapsed_ms(),
            violations: Vec::new(),
            limits_hit: Vec::new(),
            note: self.waiting_note(run),
            held: Some(Enforcement::of(&run.sandbox)),
            stdout,
            stderr,
            code: None,
            commands: run.command_records(),
        };
        match finish {
            None => base,
            Some(finish) => RunSnapshot {
                state: finish.state,
                exit_code: finish.exit_code,
                signal: finish.signal,
                duration_ms: finish.duration_ms,
                violations: finish.violations.clone(),
                limits_hit: finish.limits_hit.clone(),
                note: finish.note.clone(),
                code: finish.code.clone(),
                commands: finish.commands.clone(),
                ..base
            },
        }
    }

    /// The run with that id, wherever it is.
    pub(crate) fn snapshot(&self, id: &RunId) -> Result<RunSnapshot> {
        if let Some(run) = self.live.get(id) {
            return Ok(self.snapshot_of(&run));
        }
        let row = self.journal.run(id)?.ok_or_else(|| no_such_run(id))?;
        let (stdout, stderr) = self.journal.run_output(id, &row)?;
        stored_snapshot(id, row, stdout, stderr)
    }
}

fn stored_snapshot(id: &RunId, row: RunRow, stdout: KeptOutput, stderr: KeptOutput) -> Result<RunSnapshot> {
    Ok(RunSnapshot {
        id: id.clone(),
        sandbox: row.sandbox_name.unwrap_or(row.sandbox_id).parse()?,
        state: state_from(&row.state),
        exit_code: row.exit_code,
        signal: row.signal,
        duration_ms: row.duration_ms.unwrap_or(0),
        violations: serde_json::from_value(row.violations).unwrap_or_default(),
        limits_hit: serde_json::from_value(row.limits_hit).unwrap_or_default(),
        note: row.note,
        held: serde_json::from_value(row.containment).ok(),
        stdout,
        stderr,
        code: None,
        commands: serde_json::from_value(row.commands).unwrap_or_default(),
    })
}

impl Runs {
    /// The id of a run of the caller's namespace that is named by it or by its job. Every id that comes
    /// from outside comes through here: one of another namespace is none.
    pub(crate) fn find_run(&self, context: &CallContext, which: &RunOrJob) -> Result<RunId> {
        let (sandbox, job) = match which {
            RunOrJob::Run(id) => {
                let known = match self.live.get(id) {
                    Some(run) => run.sandbox.namespace == context.namespace,
                    None => {
                        self.journal.run(id)?.is_some_and(|row| row.namespace == context.namespace.as_str())
                    }
                };
                return if known { Ok(id.clone()) } else { Err(no_such_run(id)) };
            }
            RunOrJob::Job { sandbox, job } => (sandbox, job),
        };
        let named = self.journal.jobs_named(&context.namespace, job)?;
        if let Some((_, id)) = named.iter().find(|(name, _)| name == sandbox.as_str()) {
            return id.parse();
        }
        let error = Error::new(Code::JobNotFound, format!("the sandbox {sandbox} has no job {job}"));
        let error = match named.first() {
            Some((other, _)) => error.next(format!("the sandbox {other} has one: say `{other}:{job}`")),
            None => error,
        };
        Err(error.next("`history` lists runs with their ids, `list_jobs` the jobs there are"))
    }
}

pub(crate) fn no_such_run(id: &RunId) -> Error {
    Error::new(Code::RunNotFound, format!("there is no run {id}"))
        .next("`history` lists the runs that are recorded")
}
