//! Jobs: commands nobody waits for, by name. `logs`, `wait` and `kill` take the name of a job where
//! they take the id of a run, so here is only what is a job's own: starting, listing, writing to it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use isle_fail::Point;
use isle_store::{RunFilter, RunRow};
use isle_wire::TerminalSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::inputs::{Environment, User, argv, named_place, program};
use super::shapes::RunState;
use super::times::timestamp;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::failpoint;
use crate::journal::{Audit, state_from};
use crate::run::{Input as RunInput, OnCancel, Patience, Plan, RunKind, RunLimits};
use crate::values::{GuestPath, JobName, RunId, RunOrJob, SandboxName, Span};
use crate::vault::Wishes;

/// The window of a terminal nobody has looked at yet.
const WINDOW: TerminalSize = TerminalSize { rows: 24, columns: 80 };
/// How long a start waits to see whether the job starts at all.
const A_MOMENT: Duration = Duration::from_millis(50);
/// How long a program may take to read what is written to it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of input in one call.
const MOST_INPUT: usize = 1024 * 1024;

/// A job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct JobShape {
    /// For logs, wait, kill and write_job: SANDBOX:NAME, or the run id.
    job: String,
    run_id: String,
    sandbox: String,
    command: String,
    state: RunState,
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    started_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    pty: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl JobShape {
    fn of(row: RunRow) -> Self {
        let sandbox = row.sandbox_name.unwrap_or(row.sandbox_id);
        Self {
            job: row.job.map_or_else(|| row.id.clone(), |name| format!("{sandbox}:{name}")),
            run_id: row.id,
            sandbox,
            command: row.command,
            state: state_from(&row.state),
            exit_code: row.exit_code,
            signal: row.signal,
            started_at: timestamp(row.started_at_ms),
            ended_at: row.ended_at_ms.map(timestamp),
            duration_ms: row.duration_ms,
            pty: row.terminal,
            note: row.note,
        }
    }
}

pub(super) struct StartJob;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StartInput {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    /// Unique among the jobs going on in the sandbox; left out, the run id names it.
    name: Option<JobName>,
    /// Shell text. Give this or argv.
    command: Option<String>,
    #[serde(default, deserialize_with = "argv")]
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    env: Option<Environment>,
    /// First text for standard input.
    stdin: Option<String>,
    /// Keep standard input open for write_job.
    input: Option<bool>,
    /// Give it a terminal; people can attach to it.
    pty: Option<bool>,
    user: Option<User>,
    /// Default none.
    timeout: Option<Span>,
    limits: Option<RunLimits>,
    /// Run alone among runs with lock, in order.
    lock: Option<bool>,
    /// Secrets it has as placeholders, such as "KEY" or "KEY=VARIABLE".
    #[serde(default)]
    secrets: Vec<String>,
    /// Secrets it has as values, masked in its output.
    #[serde(default)]
    expose_secrets: Vec<String>,
}

impl Operation for StartJob {
    type Input = StartInput;
    type Output = JobShape;
    const NAME: &'static str = "start_job";
    const TITLE: &'static str = "Start a job";
    const DESCRIPTION: &'static str = "Start a command that goes on by itself, such as a server. logs, wait and kill take its name (SANDBOX:NAME) as run_id. It outlives this connection and a restart of the daemon.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/jobs" };
    const TOOLSET: Toolset = Toolset::Jobs;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: StartInput) -> Result<JobShape> {
        let text = input.stdin.map(|text| Bytes::from(text.into_bytes()));
        let pty = input.pty.unwrap_or(false);
        let plan = Plan {
            kind: RunKind::Job,
            job: input.name,
            lock: input.lock.unwrap_or(false),
            allow: Vec::new(),
            secrets: Wishes::parse(&input.secrets, &input.expose_secrets)?,
            place: named_place(input.sandbox),
            program: program(input.command, input.argv)?,
            cwd: input.cwd.as_deref().map(GuestPath::parse_absolute).transpose()?,
            env: input.env.unwrap_or_default().0,
            user: input.user.unwrap_or_default().into(),
            timeout: input.timeout,
            limits: input.limits.unwrap_or_default(),
            terminal: pty.then_some(WINDOW),
            input: match (pty || input.input.unwrap_or(false), text) {
                (true, text) => RunInput::Kept(text.unwrap_or_default()),
                (false, Some(text)) => RunInput::Bytes(text),
                (false, None) => RunInput::Null,
            },
            patience: Patience::GoOn,
        };
        let inner = &engine.inner;
        // Room for what it will print.
        inner.sweep_spools();
        let run = inner.start_run(&context, plan).await?;
        // It was started whether or not anybody still listens.
        run.wait(&context, A_MOMENT, OnCancel::Leave).await.ok();
        if let Some(error) = run.finish().and_then(|finish| finish.error.clone()) {
            return Err(error);
        }
        let row = inner.journal.run(&run.id)?.ok_or_else(|| Error::internal("the job has no record"))?;
        let waiting = inner.waiting_note(&run);
        let shape = JobShape::of(row);
        Ok(JobShape { note: shape.note.or(waiting), ..shape })
    }
}

pub(super) struct ListJobs;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListInput {
    /// Left out: all.
    sandbox: Option<SandboxName>,
    state: Option<RunState>,
    /// Default 50, at most 500.
    limit: Option<u32>,
}

/// Jobs.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Jobs {
    jobs: Vec<JobShape>,
}

impl Operation for ListJobs {
    type Input = ListInput;
    type Output = Jobs;
    const NAME: &'static str = "list_jobs";
    const TITLE: &'static str = "List jobs";
    const DESCRIPTION: &'static str = "Jobs going on and ended, newest first.";
    const ROUTE: Route = Route { method: Method::Get, path: "/jobs" };
    const TOOLSET: Toolset = Toolset::Jobs;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: ListInput) -> Result<Jobs> {
        let limit = input.limit.unwrap_or(50);
        if !(1..=500).contains(&limit) {
            return Err(Error::new(Code::InvalidArgument, "limit is out of range").next("choose 1 to 500"));
        }
        let filter = RunFilter {
            namespace: Some(context.namespace.to_string()),
            sandbox: input.sandbox.map(|name| name.to_string()),
            state: input.state.map(|state| state.as_str().to_owned()),
            kind: Some(RunKind::Job.as_str().to_owned()),
            limit,
            before: None,
        };
        let rows = engine.inner.journal.runs(&filter)?;
        Ok(Jobs { jobs: rows.into_iter().map(JobShape::of).collect() })
    }
}

pub(super) struct WriteJob;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteInput {
    /// The job: SANDBOX:NAME, or the run id.
    run_id: RunOrJob,
    /// What to write; end a line with \n.
    text: Option<String>,
    /// Bytes instead of text.
    base64: Option<String>,
    /// Then end its standard input.
    eof: Option<bool>,
}

/// What was written.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Written {
    run_id: RunId,
    /// Bytes the job took.
    written_bytes: usize,
    /// Bytes it did not read in time; send them again.
    unread_bytes: usize,
    /// Whether its standard input was ended.
    ended: bool,
}

impl Operation for WriteJob {
    type Input = WriteInput;
    type Output = Written;
    const NAME: &'static str = "write_job";
    const TITLE: &'static str = "Write to a job";
    const DESCRIPTION: &'static str =
        "Write to the standard input of a job that was started with input or pty. See its answer with logs.";
    const ROUTE: Route = Route { method: Method::Post, path: "/runs/{run_id}/input" };
    const TOOLSET: Toolset = Toolset::Jobs;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: WriteInput) -> Result<Written> {
        let refuse = |what: &str, next: &str| Error::new(Code::InvalidArgument, what).next(next);
        let bytes = match (input.text, input.base64) {
            (Some(_), Some(_)) => {
                return Err(refuse("text and base64 are both given", "give one of the two"));
            }
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => STANDARD.decode(&text).map_err(|error| {
                refuse(
                    &format!("base64 cannot be read: {error}"),
                    "encode it in standard base64 with padding",
                )
            })?,
            (None, None) => Vec::new(),
        };
        let end = input.eof.unwrap_or(false);
        if bytes.is_empty() && !end {
            return Err(refuse("there is nothing to write", "give text or base64, or eof to end the input"));
        }
        if bytes.len() > MOST_INPUT {
            let message = format!("the input is larger than {MOST_INPUT} bytes");
            return Err(Error::new(Code::TooLarge, message)
                .next("write it in smaller pieces, or put it into a file with write_files"));
        }
        let inner = &engine.inner;
        let run_id = inner.find_run(&context, &input.run_id)?;
        let Some(run) = inner.runs.get(&run_id) else {
            let stored = inner.snapshot(&run_id)?;
            return Err(crate::run::finished(run_id.as_str(), stored.state.as_str()));
        };
        let total = bytes.len();
        let taken = run.write(bytes.into(), end, PATIENCE).await?;
        failpoint(Point::InputSent)?;
        let written_bytes = usize::try_from(taken).unwrap_or(total).min(total);
        let ended = end && written_bytes == total;
        let detail = json!({ "bytes": written_bytes, "eof": ended });
        let audit = Audit::run(&context, Self::NAME, &run, detail);
        inner.journal.audit(&audit).map_err(|error| error.unrecorded("it was written to the job"))?;
        isle_fail::pass(Point::InputAudited);
        Ok(Written { run_id, written_bytes, unread_bytes: total - written_bytes, ended })
    }
}
