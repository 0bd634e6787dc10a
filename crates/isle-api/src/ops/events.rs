//! `events`: what happened, from the bounded history of the bus.

use crate::event_kind::EventKind;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{RunId, SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The operation `events`.
#[derive(Debug)]
pub struct Events;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Only these kinds.
    pub kind: Option<Vec<EventKind>>,
    /// Only this sandbox.
    pub sandbox: Option<SandboxName>,
    /// Only this run.
    pub run_id: Option<RunId>,
    /// Only what happened within this time, such as 10m.
    pub since: Option<Span>,
    /// 1 to 1000, default 100.
    pub limit: Option<u32>,
    /// Events before the one with this id.
    pub before: Option<u64>,
    /// Those of all namespaces; the operator's.
    pub all: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// Newest first.
    pub events: Vec<EventShape>,
    /// Id of the newest event of those that the caller may see; follow from here.
    pub newest: u64,
    /// Give this as `before` for older ones; absent when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

/// An event as it is told at every door.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct EventShape {
    /// Counts up, also over restarts.
    pub id: u64,
    pub time: String,
    pub namespace: String,
    pub kind: EventKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// For people.
    pub message: String,
    /// For programs.
    pub data: Value,
}

impl Operation for Events {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "events";
    const TITLE: &'static str = "What happened";
    const DESCRIPTION: &'static str =
        "Events of runs, sandboxes, jobs, limits and refusals, newest first: what happened, when and where.";
    const ROUTE: Route = Route { method: Method::Get, path: "/events/history" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Reads;
}
