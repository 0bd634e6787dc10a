//! Jobs: commands nobody waits for, by name. `logs`, `wait` and `kill` take the name of a job where
//! they take the id of a run, so here is only what is a job's own: starting, listing, writing to it.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::failpoint;
use crate::journal::{Audit, state_from};
use crate::run::{Input as RunInput, OnCancel, Plan, RunKind, directory, named_target, program};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use isle_api::Operation;
use isle_api::ops::jobs::{
    JobShape, Jobs, ListInput, ListJobs, StartInput, StartJob, WriteInput, WriteJob, Written,
};
use isle_api::times::timestamp;
use isle_core::{Code, Error, Result};
use isle_fail::Point;
use isle_store::{RunFilter, RunRow};
use isle_vault::RequestedSecrets;
use isle_wire::TerminalSize;
use serde_json::json;
use std::time::Duration;

/// The window of a terminal nobody has looked at yet.
const WINDOW: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// How long a start waits to see whether the job starts at all.
const A_MOMENT: Duration = Duration::from_millis(50);

/// How long a program may take to read what is written to it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of input in one call.
const MOST_INPUT: usize = 1024 * 1024;

fn job_shape(row: RunRow) -> JobShape {
    let sandbox = row.sandbox_name.unwrap_or(row.sandbox_id);
    JobShape {
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

impl Handler for StartJob {
    async fn call(engine: Engine, context: CallContext, input: StartInput) -> Result<JobShape> {
        let text = input.stdin.map(|text| Bytes::from(text.into_bytes()));
        let pty = input.pty.unwrap_or(false);
        let program = program(input.command, input.argv)?;
        let plan = Plan {
            job: input.name,
            lock: input.lock.unwrap_or(false),
            secrets: RequestedSecrets::parse(&input.secrets, &input.expose_secrets)?,
            cwd: directory(input.cwd.as_deref())?,
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
            ..Plan::new(RunKind::Job, named_target(input.sandbox), program)
        };
        let inner = &engine.inner;
        // Room for what it will print.
        inner.runs.sweep_job_output();
        let run = inner.runs.start(&context, plan).await?;
        // It was started whether or not anybody still listens.
        run.wait(&context, A_MOMENT, OnCancel::Leave).await.ok();
        if let Some(error) = run.finish().and_then(|finish| finish.error.clone()) {
            return Err(error);
        }
        let row = inner.journal.run(&run.id)?.ok_or_else(|| Error::internal("the job has no record"))?;
        let waiting = inner.runs.waiting_note(&run);
        let shape = job_shape(row);
        Ok(JobShape { note: shape.note.or(waiting), ..shape })
    }
}

/// Pages that one call looks through.
const MOST_PAGES: usize = 8;

impl Handler for ListJobs {
    async fn call(engine: Engine, context: CallContext, input: ListInput) -> Result<Jobs> {
        let limit = input.limit.unwrap_or(50);
        if !(1..=500).contains(&limit) {
            return Err(Error::new(Code::InvalidArgument, "limit is out of range").next("choose 1 to 500"));
        }
        let mut filter = RunFilter {
            namespace: Some(context.namespace.to_string()),
            sandbox: input.sandbox.map(|name| name.to_string()),
            state: input.state.map(|state| state.as_str().to_owned()),
            kind: Some(RunKind::Job.as_str().to_owned()),
            limit,
            before: None,
        };
        // A job that goes on may be older than many that ended.
        let mut jobs = Vec::new();
        for _ in 0..MOST_PAGES {
            let wanted = filter.clone();
            let page = engine.inner.journal.listed(&context, move |listing| listing.runs(&wanted)).await?;
            jobs.extend(page.rows.into_iter().map(job_shape));
            filter.limit = limit.saturating_sub(u32::try_from(jobs.len()).unwrap_or(limit));
            filter.before = page.next;
            if filter.limit == 0 || filter.before.is_none() {
                break;
            }
        }
        Ok(Jobs { jobs })
    }
}

impl Handler for WriteJob {
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
        let run_id = inner.runs.find_run(&context, &input.run_id)?;
        let Some(run) = inner.runs.get(&run_id) else {
            let stored = inner.runs.snapshot(&run_id)?;
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
