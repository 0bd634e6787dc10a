//! An operation as server-sent events, for clients that accept `text/event-stream`: progress events, then one
//! last event with the result or the error.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::Response;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use isle_core::Error;
use isle_engine::CallContext;
use isle_engine::context::Progress;
use isle_mcp::RunToCompletion;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::app::Shared;
use crate::reply::Reply;

const HEARTBEAT: Duration = Duration::from_secs(15);
/// Maximum number of buffered progress events; a slow reader misses some.
const BUFFERED: usize = 16;

/// Whether the client accepts only events.
pub(crate) fn wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
}

struct RunningCall {
    call: RunToCompletion<Result<Value, Error>>,
    updates: mpsc::Receiver<Progress>,
    closing: CancellationToken,
}

/// Calls an operation and streams its progress.
pub(crate) fn stream_progress(
    shared: &Shared,
    mut context: CallContext,
    name: &'static str,
    input: Value,
) -> Reply {
    let (sender, updates) = mpsc::channel(BUFFERED);
    context.progress = Some(Arc::new(move |update| drop(sender.try_send(update))));
    let engine = shared.engine.clone();
    let call = RunToCompletion::new(async move { engine.call(context, name, input).await });
    let going = RunningCall { call, updates, closing: shared.closing.clone() };
    let mut reply = Response::new(Body::from_stream(stream::unfold(Some(going), next)));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

async fn next(going: Option<RunningCall>) -> Option<(Result<Bytes, Infallible>, Option<RunningCall>)> {
    let mut going = going?;
    tokio::select! {
        biased;
        Some(update) = going.updates.recv() => {
            let data = json!({ "progress": update.progress, "total": update.total, "message": update.message });
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

/// JSON text contains no line breaks, so one data line is enough.
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
        let (sender, updates) = mpsc::channel(BUFFERED);
        sender.try_send(Progress { progress: 1.0, total: Some(2.0), message: "half".into() }).unwrap();
        let call = RunToCompletion::new(async { Ok(json!({ "done": true })) });
        let going = RunningCall { call, updates, closing: CancellationToken::new() };
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
