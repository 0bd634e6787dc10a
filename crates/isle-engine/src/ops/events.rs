//! `events`: what happened, from the bounded history of the bus.

use isle_store::{EventFilter, wall_clock_ms};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::times::timestamp;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::events::{EventKind, Told, within};
use crate::values::{RunId, SandboxName, Span};

pub(super) struct Events;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Only these kinds.
    kind: Option<Vec<EventKind>>,
    /// Only this sandbox.
    sandbox: Option<SandboxName>,
    /// Only this run.
    run_id: Option<RunId>,
    /// Only what happened within this time, such as 10m.
    since: Option<Span>,
    /// 1 to 1000, default 100.
    limit: Option<u32>,
    /// Events before the one with this id.
    before: Option<u64>,
    /// Those of all namespaces; the operator's.
    all: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// Newest first.
    events: Vec<EventShape>,
    /// Id of the newest event there is; follow from here.
    newest: u64,
    /// Give this as `before` for older ones; absent when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<u64>,
}

/// An event as it is told at every door.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct EventShape {
    /// Counts up, also over restarts.
    id: u64,
    time: String,
    namespace: String,
    kind: EventKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// For people.
    message: String,
    /// For programs.
    data: Value,
}

impl From<&Told> for EventShape {
    fn from(told: &Told) -> Self {
        let event = &told.event;
        Self {
            id: told.id,
            time: timestamp(told.time_ms),
            namespace: event.namespace.clone(),
            kind: event.kind,
            sandbox: event.sandbox.clone(),
            run_id: event.run.clone(),
            message: event.message.clone(),
            data: event.data.clone(),
        }
    }
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

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let limit = input.limit.unwrap_or(100);
        if !(1..=1000).contains(&limit) {
            return Err(Error::new(Code::InvalidArgument, "limit is out of range").next("choose 1 to 1000"));
        }
        let since = |span: Span| {
            wall_clock_ms().saturating_sub(i64::try_from(span.0.as_millis()).unwrap_or(i64::MAX))
        };
        let filter = EventFilter {
            namespace: within(&context, input.all.unwrap_or(false))?,
            kinds: input.kind.unwrap_or_default().iter().map(|kind| kind.as_str().to_owned()).collect(),
            sandbox: input.sandbox.map(|name| name.to_string()),
            run: input.run_id.map(|id| id.to_string()),
            since_ms: input.since.map(since),
            before: input.before,
            limit,
        };
        let events = &engine.inner.events;
        let newest = events.newest();
        let found = events.history(&filter)?;
        let full = found.len() >= limit as usize;
        let before = found.last().map(|told| told.id).filter(|_| full);
        Ok(Output { events: found.iter().map(|told| EventShape::from(&**told)).collect(), newest, before })
    }
}
