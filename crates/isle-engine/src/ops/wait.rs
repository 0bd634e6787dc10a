//! `wait`: for the end of a run.

use schemars::JsonSchema;
use serde::Deserialize;

use super::shapes::RunResult;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::run::{OnCancel, answer_budget};
use crate::values::{RunOrJob, Span};

/// The longest one call may wait.
const LONGEST: Span = Span::seconds(300);

pub(super) struct Wait;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    run_id: RunOrJob,
    /// At most 300s; default 45s.
    timeout: Option<Span>,
}

impl Operation for Wait {
    type Input = Input;
    type Output = RunResult;
    const NAME: &'static str = "wait";
    const TITLE: &'static str = "Wait for a run";
    const DESCRIPTION: &'static str =
        "Wait for a run to end and return its result; state=running if it has not.";
    const ROUTE: Route = Route { method: Method::Post, path: "/runs/{run_id}/wait" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<RunResult> {
        let timeout = input.timeout.unwrap_or(engine.inner.config.wait.min(LONGEST));
        if timeout > LONGEST {
            return Err(Error::new(Code::InvalidArgument, format!("{timeout} is longer than {LONGEST}"))
                .next("wait at most 300s; call again while the run goes on"));
        }
        let run_id = engine.inner.find_run(&context, &input.run_id)?;
        if let Some(run) = engine.inner.runs.get(&run_id) {
            run.wait(&context, timeout.0, OnCancel::Leave).await?;
        }
        Ok(engine.inner.snapshot(&run_id)?.result(answer_budget(None, &engine.inner.config)))
    }
}
