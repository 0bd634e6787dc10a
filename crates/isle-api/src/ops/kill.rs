//! `kill`: ends a run, or signals it.

use crate::shapes::RunState;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{RunId, RunOrJob};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The operation `kill`.
#[derive(Debug)]
pub struct Kill;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub run_id: RunOrJob,
    /// Send only this, e.g. "INT"; default TERM, 5s, then KILL to all.
    #[serde(default, deserialize_with = "word_or_number")]
    pub signal: Option<String>,
    /// KILL the whole tree at once.
    pub force: Option<bool>,
}

fn word_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        _ => Err(serde::de::Error::custom("signal is neither a name nor a number")),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub run_id: RunId,
    pub state: RunState,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Last lines of output.
    pub last_output: String,
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
}
