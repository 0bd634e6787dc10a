//! `wait`: for the end of a run.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::run::{OnCancel, answer_budget};
use isle_api::ops::wait::{Input, Wait};
use isle_api::shapes::RunResult;
use isle_core::values::Span;
use isle_core::{Code, Error, Result};

/// The longest one call may wait.
const LONGEST: Span = Span::seconds(300);

impl Handler for Wait {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<RunResult> {
        let timeout = input.timeout.unwrap_or(engine.inner.config.wait.min(LONGEST));
        if timeout > LONGEST {
            return Err(Error::new(Code::InvalidArgument, format!("{timeout} is longer than {LONGEST}"))
                .next("wait at most 300s; call again while the run goes on"));
        }
        let run_id = engine.inner.runs.find_run(&context, &input.run_id)?;
        if let Some(run) = engine.inner.runs.get(&run_id) {
            run.wait(&context, timeout.0, OnCancel::Leave).await?;
        }
        Ok(engine.inner.runs.snapshot(&run_id)?.result(answer_budget(None, &engine.inner.config)))
    }
}
