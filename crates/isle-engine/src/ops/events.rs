//! `events`: what happened, from the bounded history of the bus.

use super::Handler;
use crate::context::{CallContext, CallerRole};
use crate::engine::Engine;
use crate::events::{Told, within};
use isle_api::ops::events::{EventShape, Events, Input, Output};
use isle_api::times::timestamp;
use isle_core::clock::wall_clock_ms;
use isle_core::values::Span;
use isle_core::{Code, Error, Result};
use isle_store::EventFilter;

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

impl Handler for Events {
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
        let newest = match context.role {
            CallerRole::Operator => events.newest(),
            // The number of all events would tell how much others do.
            CallerRole::Tenant => {
                let own =
                    EventFilter { namespace: filter.namespace.clone(), limit: 1, ..EventFilter::default() };
                let (newest, _) = events.history(&engine.inner.journal, &context, own).await?;
                newest.first().map_or(0, |told| told.id)
            }
        };
        let (found, before) = events.history(&engine.inner.journal, &context, filter).await?;
        Ok(Output { events: found.iter().map(|told| EventShape::from(&**told)).collect(), newest, before })
    }
}
