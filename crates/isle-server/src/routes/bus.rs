//! What happens in the daemon, as server-sent events. A client that lost its connection, or whose daemon
//! was started anew, goes on after the last event it saw; what is gone by then is told as lost.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use isle_engine::events::{EventSelection, FollowedEvent};
use isle_engine::ops::EventShape;
use isle_engine::{Code, Error, Result};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::app::Shared;
use crate::query;
use crate::reply::{self, Reply};
use crate::routes::events::parse_position;
use crate::routes::operations::peer;

const HEARTBEAT: Duration = Duration::from_secs(15);

/// `GET /v1/events`
pub(crate) async fn follow(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (parts, _) = request.into_parts();
    match followed(&shared, &parts) {
        Ok(reply) => reply,
        Err(error) => reply::error(&error),
    }
}

fn followed(shared: &Shared, parts: &Parts) -> Result<Reply> {
    // Who comes back has the last word about its place, whatever its first address said.
    let last_seen = parts.headers.get("last-event-id");
    let mut after = last_seen.map(|id| parse_position(id.to_str().unwrap_or_default())).transpose()?;
    let context = peer(parts)?.context(&parts.headers);
    let mut all = false;
    let mut selection = EventSelection::default();
    for (name, value) in query::pairs(parts.uri.query().unwrap_or_default())? {
        match name.as_str() {
            "after" => after = Some(after.map_or_else(|| parse_position(&value), Ok)?),
            "kind" => {
                for kind in value.split(',').filter(|kind| !kind.is_empty()) {
                    selection.kinds.push(kind.parse()?);
                }
            }
            "sandbox" => selection.sandbox = Some(value.parse()?),
            "run_id" => selection.run = Some(value.parse()?),
            "all" => {
                all = value.parse().map_err(|_| {
                    Error::new(Code::InvalidArgument, format!("`all` is not {value:?}"))
                        .next("say true or false")
                })?;
            }
            _ => {
                return Err(Error::new(Code::InvalidArgument, format!("there is no argument {name:?} here"))
                    .next("use `kind`, `sandbox`, `run_id`, `all` and `after`"));
            }
        }
    }
    let events = shared.engine.follow_events(&context, all, after, selection)?;
    let mut reply = Response::new(Body::from_stream(encoded(events, shared.closing.clone(), HEARTBEAT)));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

/// Events as text, with a comment now and then so that a broken connection is noticed. It begins with one,
/// so that a client knows at once that it is heard.
fn encoded(
    events: BoxStream<'static, FollowedEvent>,
    closing: CancellationToken,
    heartbeat: Duration,
) -> impl futures::Stream<Item = Result<Bytes, Infallible>> {
    let beat = || Ok(Bytes::from_static(b": beat\n\n"));
    let rest = stream::unfold((events, closing), move |(mut events, closing)| async move {
        tokio::select! {
            biased;
            () = closing.cancelled() => None,
            event = events.next() => Some((Ok(Bytes::from(encode(&event?))), (events, closing))),
            () = tokio::time::sleep(heartbeat) => Some((beat(), (events, closing))),
        }
    });
    stream::iter([beat()]).chain(rest)
}

fn encode(event: &FollowedEvent) -> String {
    let (id, name, data) = match event {
        FollowedEvent::Lost { events, id } => (*id, "lost", json!({ "events": events })),
        FollowedEvent::Event(told) => (told.id, told.event.kind.as_str(), json!(EventShape::from(&**told))),
    };
    // JSON text has no line breaks of its own, so one data line is enough.
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_quiet_stream_beats_from_the_beginning_and_ends_with_the_server() {
        assert_eq!(HEARTBEAT.as_secs(), 15);
        let closing = CancellationToken::new();
        let quiet = stream::pending().boxed();
        let mut texts = encoded(quiet, closing.clone(), Duration::from_millis(1)).boxed();
        for _ in 0..3 {
            assert_eq!(&texts.next().await.unwrap().unwrap()[..], b": beat\n\n");
        }
        closing.cancel();
        assert!(texts.next().await.is_none());
    }

    #[test]
    fn a_gap_is_an_event_with_a_place_of_its_own() {
        let lost = FollowedEvent::Lost { events: 7, id: 12 };
        assert_eq!(encode(&lost), "id: 12\nevent: lost\ndata: {\"events\":7}\n\n");
    }
}
