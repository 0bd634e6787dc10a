//! `kill`: ends a run, or signals it.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::run::{KillRequest, finished, parse_signal};
use isle_api::ops::kill::{Input, Kill, Output};
use isle_core::{Code, Error, Result};

/// Lines and bytes of output in the answer.
const LAST_LINES: usize = 20;

const LAST_BYTES: usize = 4_000;

impl Handler for Kill {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let request = match (input.signal, input.force.unwrap_or(false)) {
            (None, false) => KillRequest::Politely,
            (None, true) => KillRequest::AtOnce,
            (Some(signal), false) => KillRequest::Signal(parse_signal(&signal)?),
            (Some(_), true) => {
                return Err(Error::new(Code::InvalidArgument, "signal and force are both given")
                    .next("force always means KILL; give one of the two"));
            }
        };
        let run_id = engine.inner.runs.find_run(&context, &input.run_id)?;
        let Some(run) = engine.inner.runs.get(&run_id) else {
            let stored = engine.inner.runs.snapshot(&run_id)?;
            return Err(finished(run_id.as_str(), stored.state.as_str()));
        };
        run.kill(&context, request).await?;
        let snapshot = engine.inner.runs.snapshot_of(&run);
        let last = if snapshot.stdout.total > 0 { &snapshot.stdout } else { &snapshot.stderr };
        Ok(Output {
            state: snapshot.state,
            exit_code: snapshot.exit_code,
            signal: snapshot.signal,
            last_output: last.last_lines(LAST_LINES, LAST_BYTES).text,
            run_id,
        })
    }
}
