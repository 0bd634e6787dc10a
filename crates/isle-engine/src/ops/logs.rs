//! `logs`: the output of a run, from its end or page by page, while it goes on and afterwards.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::run::events::StreamName;
use crate::run::output::{KeptOutput, OutputPage};
use crate::run::{Run, answer_budget};
use isle_api::ops::logs::{Input, Logs, Output, Page, StreamChoice};
use isle_core::values::{ByteSize, Span};
use isle_core::{Code, Error, Result};

/// Lines shown when the call says nothing.
const LINES: i64 = 50;

/// The longest one call may wait.
const LONGEST: Span = Span::seconds(300);

impl Handler for Logs {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let paged = input.offset.is_some() || input.limit.is_some();
        if paged && input.tail.is_some() {
            return Err(Error::new(Code::InvalidArgument, "tail is given beside offset or limit")
                .next("give tail for the last lines, or offset and limit for pages"));
        }
        let stream = match (input.stream, paged) {
            (Some(StreamChoice::Both), true) => {
                return Err(Error::new(Code::InvalidArgument, "a page is of one stream")
                    .next("set stream to stdout or stderr"));
            }
            (Some(stream), _) => stream,
            (None, true) => StreamChoice::Stdout,
            (None, false) => StreamChoice::Both,
        };
        let run_id = engine.inner.runs.find_run(&context, &input.run_id)?;
        if let Some(wait) = input.wait {
            let Some(offset) = input.offset else {
                return Err(Error::new(Code::InvalidArgument, "wait is given without offset")
                    .next("pass next_offset of the page before as offset, or 0"));
            };
            if wait > LONGEST {
                return Err(Error::new(Code::InvalidArgument, format!("{wait} is longer than {LONGEST}"))
                    .next("wait at most 300s; call again while the run goes on"));
            }
            if let Some(run) = engine.inner.runs.get(&run_id) {
                let more = |run: &Run| {
                    let (stdout, stderr) = run.totals();
                    offset < if stream == StreamChoice::Stderr { stderr } else { stdout }
                };
                run.wait_for_output(&context, wait.0, more).await?;
            }
        }
        let snapshot = engine.inner.runs.snapshot(&run_id)?;
        let config = &engine.inner.config;
        let budget = match input.limit {
            Some(limit) => answer_budget(Some((ByteSize(limit.saturating_mul(2)), &context)), config),
            None => answer_budget(None, config),
        };
        let (for_stdout, for_stderr) = match stream {
            StreamChoice::Both => snapshot.shares(budget),
            StreamChoice::Stdout | StreamChoice::Stderr => (budget, budget),
        };
        let show = |kept: &KeptOutput, name: StreamName, budget: usize| {
            let limit = input.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
            let asked = input.offset.unwrap_or(0);
            let (page, lost) = if paged {
                let mut page = kept.page(asked, limit, budget);
                // Of a job, files may have what is missing there.
                let filed = engine.inner.runs.job_output().filter(|_| kept.has_gap());
                let most = limit.min(budget).saturating_add(4);
                let filed = filed.and_then(|spools| spools.read(&run_id, name, asked, most));
                if let Some(filed) = filed.map(|filed| filed.page(asked, limit, budget))
                    && filed.offset <= page.offset
                {
                    page = filed;
                }
                let lost = page.offset.saturating_sub(asked);
                (page, lost)
            } else {
                let lines = usize::try_from(input.tail.unwrap_or(LINES).max(0)).unwrap_or(usize::MAX);
                (kept.last_lines(lines, budget), 0)
            };
            let OutputPage { text, offset, next } = page;
            Page { text, offset, next_offset: next, total_bytes: kept.total, lost_bytes: lost }
        };
        Ok(Output {
            state: snapshot.state,
            stdout: (stream != StreamChoice::Stderr)
                .then(|| show(&snapshot.stdout, StreamName::Stdout, for_stdout)),
            stderr: (stream != StreamChoice::Stdout)
                .then(|| show(&snapshot.stderr, StreamName::Stderr, for_stderr)),
            run_id,
        })
    }
}
