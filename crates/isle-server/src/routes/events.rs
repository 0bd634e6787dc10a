//! Events of the daemon, as server-sent events or over a WebSocket. A client that lost its connection, or whose
//! daemon was restarted, continues after the last event it received; dropped events are reported as `lost`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Request, State};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{SinkExt, StreamExt};
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, UPGRADE};
use http::request::Parts;
use isle_api::ops::events::EventShape;
use isle_core::{Code, Error, Result};
use isle_engine::events::{EventSelection, FollowedEvent};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::Shared;
use crate::query;
use crate::reply::{self, Reply};
use crate::routes::operations::peer;
use crate::routes::run_events::parse_position;

const HEARTBEAT: Duration = Duration::from_secs(15);

/// Send timeout of a WebSocket message.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of messages from clients, which are ignored.
const MAX_MESSAGE: usize = 4 * 1024;

/// `GET /v1/events`
pub(crate) async fn follow(
    State(shared): State<Arc<Shared>>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> Reply {
    let (parts, _) = request.into_parts();
    let events = match selected(&shared, &parts) {
        Ok(events) => events,
        Err(error) => return reply::error(&error),
    };
    match socket {
        Ok(socket) => {
            let running = shared.tasks.token();
            let closing = shared.closing.clone();
            socket.max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE).on_upgrade(
                move |socket| async move {
                    stream_to_socket(socket, events, closing, HEARTBEAT).await;
                    drop(running);
                },
            )
        }
        Err(rejection) if parts.headers.contains_key(UPGRADE) => rejection.into_response(),
        Err(_) => streamed(&shared, events),
    }
}

/// The events a request selects.
fn selected(shared: &Shared, parts: &Parts) -> Result<BoxStream<'static, FollowedEvent>> {
    // After a reconnect, the header takes precedence over the query of the first request.
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
                    Error::new(Code::InvalidArgument, format!("invalid `all`: {value:?}"))
                        .next("use true or false")
                })?;
            }
            _ => {
                return Err(Error::new(Code::InvalidArgument, format!("unknown argument: {name:?}"))
                    .next("use `kind`, `sandbox`, `run_id`, `all` and `after`"));
            }
        }
    }
    shared.engine.follow_events(&context, all, after, selection)
}

fn streamed(shared: &Shared, events: BoxStream<'static, FollowedEvent>) -> Reply {
    let mut reply = Response::new(Body::from_stream(encoded(events, shared.closing.clone(), HEARTBEAT)));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// The same over a WebSocket: one text message per event, with pings. A slow reader receives the number of dropped
/// events; a client that does not read is disconnected.
async fn stream_to_socket(
    socket: WebSocket,
    mut events: BoxStream<'static, FollowedEvent>,
    closing: CancellationToken,
    heartbeat: Duration,
) {
    let (mut sink, mut incoming) = socket.split();
    loop {
        let message = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            message = incoming.next() => match message {
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => continue,
            },
            event = events.next() => match event {
                Some(event) => {
                    let (id, name, data) = parts_of(&event);
                    Message::text(json!({ "id": id, "event": name, "data": data }).to_string())
                }
                None => break,
            },
            () = tokio::time::sleep(heartbeat) => Message::Ping(Bytes::new()),
        };
        if !matches!(tokio::time::timeout(SEND_TIMEOUT, sink.send(message)).await, Ok(Ok(()))) {
            return;
        }
    }
    // The client may have disconnected, or not read; do not wait for it.
    drop(tokio::time::timeout(Duration::from_secs(1), sink.send(Message::Close(None))).await);
}

/// Events as text, with periodic comments to detect a broken connection. The first one is sent immediately, so
/// that the client knows that the stream is open.
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

/// Id, name and data of an event.
fn parts_of(event: &FollowedEvent) -> (u64, &'static str, Value) {
    match event {
        FollowedEvent::Lost { events, id } => (*id, "lost", json!({ "events": events })),
        FollowedEvent::Event(told) => (told.id, told.event.kind.as_str(), json!(EventShape::from(&**told))),
    }
}

fn encode(event: &FollowedEvent) -> String {
    let (id, name, data) = parts_of(event);
    // JSON text contains no line breaks, so one data line is enough.
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
