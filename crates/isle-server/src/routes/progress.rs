//! An operation as server-sent events, for callers that ask for `text/event-stream`: signs of life while
//! it goes on, then one last event with its result or its error.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::Response;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use isle_engine::context::Beat;
use isle_engine::{CallContext, Error};
use isle_mcp::Outlive;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::app::Shared;
use crate::reply::Reply;

const HEARTBEAT: Duration = Duration::from_secs(15);
/// Signs of life that wait for a reader; who reads more slowly misses some.
const WAITING: usize = 16;

/// Whether a caller wants events and nothing else.
pub(crate) fn wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
}

struct Going {
    call: Outlive<Result<Value, Error>>,
    beats: mpsc::Receiver<Beat>,
    closing: CancellationToken,
}

/// Calls an operation and tells of it.
pub(crate) fn told(shared: &Shared, mut context: CallContext, name: &'static str, input: Value) -> Reply {
    let (sender, beats) = mpsc::channel(WAITING);
    context.beats = Some(Arc::new(move |beat| drop(sender.try_send(beat))));
    let engine = shared.engine.clone();
    let call = Outlive::new(async move { engine.call(context, name, input).await });
    let going = Going { call, beats, closing: shared.closing.clone() };
    let mut reply = Response::new(Body::from_stream(stream::unfold(Some(going), next)));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

async fn next(going: Option<Going>) -> Option<(Result<Bytes, Infallible>, Option<Going>)> {
    let mut going = going?;
    tokio::select! {
        biased;
        Some(beat) = going.beats.recv() => {
            let data = json!({ "progress": beat.progress, "total": beat.total, "message": beat.message });
            Some((Ok(encode("progress", &data)), Some(going)))
        }
        outcome = &mut going.call => {
            let last = match outcome {
                Ok(output) => encode("result", &output),
                Err(error) => encode("error", &json!({ "error": error.to_json() })),
            };
            Some((Ok(last), None))
        }
        () = going.closing.cancelled() => None,
        () = tokio::time::sleep(HEARTBEAT) => Some((Ok(Bytes::from_static(b": beat\n\n")), Some(going))),
    }
}

/// JSON text has no line breaks of its own, so one data line is enough.
fn encode(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_asks_for_events_alone_gets_them() {
        let asks = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_str(text).unwrap());
            wanted(&headers)
        };
        assert!(asks("text/event-stream") && asks("Text/Event-Stream; charset=utf-8"));
        assert!(!asks("application/json, text/event-stream") && !asks("*/*") && !asks(""));
        assert!(!wanted(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn signs_of_life_come_before_the_result_which_is_the_last_event() {
        let (sender, beats) = mpsc::channel(WAITING);
        sender.try_send(Beat { progress: 1.0, total: Some(2.0), message: "half".into() }).unwrap();
        let call = Outlive::new(async { Ok(json!({ "done": true })) });
        let going = Going { call, beats, closing: CancellationToken::new() };
        let (first, going) = next(Some(going)).await.unwrap();
        assert_eq!(
            &first.unwrap()[..],
            b"event: progress\ndata: {\"message\":\"half\",\"progress\":1.0,\"total\":2.0}\n\n"
        );
        let (last, going) = next(going).await.unwrap();
        assert_eq!(&last.unwrap()[..], b"event: result\ndata: {\"done\":true}\n\n");
        assert!(next(going).await.is_none());
    }
}
