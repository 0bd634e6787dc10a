//! Runs as server-sent events. Every event has an id; a client that lost its connection continues after the last
//! one it received.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use isle_core::values::{RunId, RunOrJob};
use isle_core::{Code, Error, Result};
use isle_engine::CallContext;
use isle_engine::engine::{FollowFrom, RunEvent, RunEventKind};
use isle_mcp::RunToCompletion;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::Shared;
use crate::query;
use crate::reply::{self, Reply};
use crate::routes::operations::{self, path_texts, peer};

const HEARTBEAT: Duration = Duration::from_secs(15);
const RUN_HEADER: &str = "isle-run-id";

/// `GET /v1/runs/{run_id}/events`
pub(crate) async fn follow(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, _) = request.into_parts();
    match followed(&shared, &mut parts).await {
        Ok(reply) => reply,
        Err(error) => reply::error(&error),
    }
}

async fn followed(shared: &Shared, parts: &mut Parts) -> Result<Reply> {
    let mut texts = path_texts(parts).await?;
    let run: RunOrJob = texts.pop().map(|(_, value)| value).unwrap_or_default().parse()?;
    let mut after =
        parts.headers.get("last-event-id").map(|id| parse_position(id.to_str().unwrap_or_default()));
    let mut tail = None;
    for (name, value) in query::pairs(parts.uri.query().unwrap_or_default())? {
        match name.as_ref() {
            "after" => drop(after.get_or_insert_with(|| parse_position(&value))),
            "tail" => tail = Some(parse_lines(&value)?),
            _ => {
                return Err(Error::new(Code::InvalidArgument, format!("unknown argument: {name:?}")).next(
                    "use `after` with the id of the last event received, or `tail` with a number of lines",
                ));
            }
        }
    }
    // A client that reconnects sends both and has received the tail already.
    let from = match (after.transpose()?, tail) {
        (Some(0) | None, Some(lines)) => FollowFrom::Tail(lines),
        (after, _) => FollowFrom::After(after.unwrap_or(0)),
    };
    let context = peer(parts)?.context(&parts.headers);
    stream_of(shared, &context, &shared.engine.find_run(&context, &run)?, from)
}

fn parse_lines(text: &str) -> Result<usize> {
    text.parse().map_err(|_| {
        Error::new(Code::InvalidArgument, format!("invalid number of lines: {text:?}"))
            .next("use an integer for `tail`; 0 shows only new output")
    })
}

pub(super) fn parse_position(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        Error::new(Code::InvalidArgument, format!("invalid event id: {text:?}"))
            .next("use the id of the last event received, or 0")
    })
}

/// `POST /v1/sandboxes/{sandbox}/exec/stream`: like `exec`, responds with a stream of events.
pub(crate) async fn exec_stream(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, body) = request.into_parts();
    let schema = match shared.engine.registry().get("exec") {
        Ok(entry) => entry.input_schema().as_value(),
        Err(error) => return reply::error(&error),
    };
    let input = match operations::body_input(schema, &mut parts, body).await {
        Ok(input) => input,
        Err(rejection) => return rejection.into_reply(),
    };
    match started(&shared, &parts, input).await {
        Ok(reply) => reply,
        Err(error) => reply::error(&error),
    }
}

async fn started(shared: &Shared, parts: &Parts, mut input: Value) -> Result<Reply> {
    if input.get("wait").is_some_and(|wait| !wait.is_null()) {
        return Err(Error::new(Code::InvalidArgument, "`wait` is not supported for streams").next("omit it"));
    }
    input["wait"] = json!("0s");
    let context = peer(parts)?.context(&parts.headers);
    let engine = shared.engine.clone();
    let caller = context.clone();
    let run = RunToCompletion::new(async move { engine.call(caller, "exec", input).await }).await?;
    let run: RunId = run["run_id"].as_str().unwrap_or_default().parse()?;
    stream_of(shared, &context, &run, FollowFrom::After(0))
}

fn stream_of(shared: &Shared, context: &CallContext, run: &RunId, from: FollowFrom) -> Result<Reply> {
    let mut events = shared.engine.follow(context, run, from)?;
    // A browser reconnects after the end of a stream unless it gets 204 No Content.
    let events = match events.next().now_or_never() {
        Some(None) => {
            let mut reply = Response::new(Body::empty());
            *reply.status_mut() = StatusCode::NO_CONTENT;
            return Ok(reply);
        }
        Some(Some(first)) => stream::iter([first]).chain(events).boxed(),
        None => events,
    };
    let mut reply =
        Response::new(Body::from_stream(encoded(run.clone(), events, shared.closing.clone(), HEARTBEAT)));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(run.as_str()) {
        headers.insert(RUN_HEADER, id);
    }
    Ok(reply)
}

/// Events as text, with periodic comments to detect a broken connection.
fn encoded(
    run: RunId,
    events: BoxStream<'static, RunEvent>,
    shutdown: CancellationToken,
    heartbeat: Duration,
) -> impl futures::Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some((run, events, shutdown)), move |state| async move {
        let (run, mut events, shutdown) = state?;
        tokio::select! {
            biased;
            event = events.next() => {
                let event = event?;
                let text = Bytes::from(encode(&run, &event));
                let is_last = matches!(event.kind, RunEventKind::Ended(_));
                Some((Ok(text), (!is_last).then_some((run, events, shutdown))))
            }
            () = shutdown.cancelled() => None,
            () = tokio::time::sleep(heartbeat) => {
                Some((Ok(Bytes::from_static(b": beat\n\n")), Some((run, events, shutdown))))
            }
        }
    })
}

fn encode(run: &RunId, event: &RunEvent) -> String {
    let (name, data) = match &event.kind {
        RunEventKind::Started => ("started", json!({ "run_id": run })),
        RunEventKind::Stdout(text) => ("stdout", json!({ "data": text })),
        RunEventKind::Stderr(text) => ("stderr", json!({ "data": text })),
        RunEventKind::Lost(bytes) => ("lost", json!({ "bytes": bytes })),
        RunEventKind::Ended(result) => ("ended", json!(result)),
    };
    // JSON text contains no line breaks, so one data line is enough.
    format!("id: {}\nevent: {name}\ndata: {data}\n\n", event.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_block_whatever_the_output_contains() {
        let run = RunId::fresh();
        let event = RunEvent { id: 7, kind: RunEventKind::Stdout("a\n\nid: 9\r\n".into()) };
        assert_eq!(encode(&run, &event), "id: 7\nevent: stdout\ndata: {\"data\":\"a\\n\\nid: 9\\r\\n\"}\n\n");
    }

    #[tokio::test]
    async fn a_silent_run_beats_and_its_end_is_the_last_event() {
        assert_eq!(HEARTBEAT.as_secs(), 15);
        let result = serde_json::from_value(json!({
            "run_id": RunId::fresh(), "sandbox": "box", "state": "completed", "exit_code": 0, "stdout": "",
            "stderr": "", "duration_ms": 1, "stdout_truncated": false, "stderr_truncated": false,
            "stdout_bytes": 0, "stderr_bytes": 0,
        }));
        let ended = RunEventKind::Ended(Box::new(result.unwrap()));
        let told = [RunEvent { id: 1, kind: RunEventKind::Started }, RunEvent { id: 2, kind: ended }];
        let after = RunEvent { id: 3, kind: RunEventKind::Lost(1) };
        let quiet =
            stream::once(tokio::time::sleep(Duration::from_millis(50))).filter_map(|()| async { None });
        let events = quiet.chain(stream::iter(told)).chain(stream::iter([after])).boxed();
        let beat = Duration::from_millis(1);
        let texts: Vec<_> = encoded(RunId::fresh(), events, CancellationToken::new(), beat).collect().await;
        let texts: Vec<String> =
            texts.into_iter().map(|text| String::from_utf8(text.unwrap().to_vec()).unwrap()).collect();
        assert_eq!(texts[0], ": beat\n\n");
        let names: Vec<&str> = texts
            .iter()
            .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("event: ")))
            .collect();
        assert_eq!(names, ["started", "ended"]);
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_last_event_or_with_the_server() {
        let lost = || RunEvent { id: 1, kind: RunEventKind::Lost(3) };
        let shutdown = CancellationToken::new();
        let open = stream::iter([lost()]).chain(stream::pending()).boxed();
        let mut texts = encoded(RunId::fresh(), open, shutdown.clone(), HEARTBEAT).boxed();
        assert_eq!(&texts.next().await.unwrap().unwrap()[..], b"id: 1\nevent: lost\ndata: {\"bytes\":3}\n\n");
        shutdown.cancel();
        assert!(texts.next().await.is_none());
    }
}
