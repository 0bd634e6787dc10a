//! `wait`: for the end of a run.

use crate::shapes::RunResult;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{RunOrJob, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// The operation `wait`.
#[derive(Debug)]
pub struct Wait;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub run_id: RunOrJob,
    /// At most 300s; default 45s.
    pub timeout: Option<Span>,
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
}
