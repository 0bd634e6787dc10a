//! `logs`: the output of a run, from its end or page by page, while it goes on and afterwards.

use crate::carried::is_zero;
use crate::shapes::RunState;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{RunId, RunOrJob, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `logs`.
#[derive(Debug)]
pub struct Logs;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub run_id: RunOrJob,
    /// Default both.
    pub stream: Option<StreamChoice>,
    /// Last lines, default 50; 0 or less is all that fits.
    pub tail: Option<i64>,
    /// Page from this byte instead (one stream).
    pub offset: Option<u64>,
    /// Bytes of a page.
    pub limit: Option<u64>,
    /// With offset: wait so long for more.
    pub wait: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum StreamChoice {
    Stdout,
    Stderr,
    Both,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub run_id: RunId,
    pub state: RunState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Page>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Page>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Page {
    pub text: String,
    /// Of the first byte shown.
    pub offset: u64,
    /// Pass as offset for what follows.
    pub next_offset: u64,
    pub total_bytes: u64,
    /// Bytes asked for that were not kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_bytes: u64,
}

impl Operation for Logs {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "logs";
    const TITLE: &'static str = "Output of a run";
    const DESCRIPTION: &'static str =
        "Show output of a run, running or ended: the last lines, or pages by offset.";
    const ROUTE: Route = Route { method: Method::Get, path: "/runs/{run_id}/logs" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Reads;
}
