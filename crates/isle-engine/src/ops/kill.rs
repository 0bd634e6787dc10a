//! `kill`: ends a run, or signals it.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::shapes::RunState;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::run::{KillRequest, finished, parse_signal};
use crate::values::{RunId, RunOrJob};

/// Lines and bytes of output in the answer.
const LAST_LINES: usize = 20;
const LAST_BYTES: usize = 4_000;

pub(super) struct Kill;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    run_id: RunOrJob,
    /// Send only this, e.g. "INT"; default TERM, 5s, then KILL to all.
    #[serde(default, deserialize_with = "word_or_number")]
    signal: Option<String>,
    /// KILL the whole tree at once.
    force: Option<bool>,
}

fn word_or_number<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        _ => Err(serde::de::Error::custom("signal is neither a name nor a number")),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    run_id: RunId,
    state: RunState,
    exit_code: Option<i32>,
    signal: Option<i32>,
    /// Last lines of output.
    last_output: String,
}

impl Operation for Kill {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "kill";
    const TITLE: &'static str = "End a run";
    const DESCRIPTION: &'static str = "End a run with all its processes, or send it a signal.";
    const ROUTE: Route = Route { method: Method::Post, path: "/runs/{run_id}/kill" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Destroys;

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
        let run_id = engine.inner.find_run(&context, &input.run_id)?;
        let Some(run) = engine.inner.runs.get(&run_id) else {
            let stored = engine.inner.snapshot(&run_id)?;
            return Err(finished(run_id.as_str(), stored.state.as_str()));
        };
        run.kill(&context, request).await?;
        let snapshot = engine.inner.snapshot_of(&run);
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
