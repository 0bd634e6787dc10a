//! File changes in a sandbox, as server-sent events.

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
use isle_core::values::{GuestPath, SandboxName};
use isle_core::{Code, Error, Result};
use isle_engine::watch::FileUpdate;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::Shared;
use crate::query;
use crate::reply::{self, Reply};
use crate::routes::files::parse_user;
use crate::routes::operations::{path_texts, peer};

const HEARTBEAT: Duration = Duration::from_secs(15);

/// `GET /v1/sandboxes/{sandbox}/files/watch/events`
pub(crate) async fn watch(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, _) = request.into_parts();
    match watched(&shared, &mut parts).await {
        Ok(reply) => reply,
        Err(error) => reply::error(&error),
    }
}

async fn watched(shared: &Shared, parts: &mut Parts) -> Result<Reply> {
    let mut texts = path_texts(parts).await?;
    let sandbox: SandboxName = texts.pop().map(|(_, value)| value).unwrap_or_default().parse()?;
    let (mut path, mut user, mut recursive) = (GuestPath::workspace(), None, true);
    for (name, value) in query::pairs(parts.uri.query().unwrap_or_default())? {
        match name.as_ref() {
            "path" => path = value.parse()?,
            "user" => user = Some(value.to_string()),
            "recursive" => {
                recursive = value.parse().map_err(|_| {
                    Error::new(Code::InvalidArgument, format!("invalid `recursive`: {value:?}"))
                        .next("use true or false")
                })?;
            }
            _ => {
                return Err(Error::new(Code::InvalidArgument, format!("unknown argument: {name:?}"))
                    .next("use `path`, `recursive` and `user`"));
            }
        }
    }
    let context = peer(parts)?.context(&parts.headers);
    let updates =
        shared.engine.watch(context, sandbox, path, parse_user(user.as_deref())?, recursive).await?;
    let mut reply = Response::new(Body::from_stream(encoded(updates, shared.closing.clone())));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

enum Stage {
    /// No event was sent yet.
    Begin,
    Going,
    Over,
}

/// Updates as text. The first event reports that the watch has started, the last one why it ended.
fn encoded(
    updates: BoxStream<'static, Result<FileUpdate>>,
    closing: CancellationToken,
) -> impl futures::Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold((Stage::Begin, 0, updates, closing), |(stage, mut id, mut updates, closing)| async move {
        match stage {
            Stage::Over => None,
            Stage::Begin => {
                let text = Bytes::from(block(&mut id, "watching", &json!({})));
                Some((Ok(text), (Stage::Going, id, updates, closing)))
            }
            Stage::Going => tokio::select! {
                update = updates.next() => {
                    let (text, stage) = match update {
                        Some(Ok(update)) => (blocks(&mut id, &update), Stage::Going),
                        Some(Err(error)) => {
                            (block(&mut id, "ended", &json!({ "error": error.to_json() })), Stage::Over)
                        }
                        None => (block(&mut id, "ended", &json!({})), Stage::Over),
                    };
                    Some((Ok(Bytes::from(text)), (stage, id, updates, closing)))
                }
                () = closing.cancelled() => None,
                () = tokio::time::sleep(HEARTBEAT) => {
                    Some((Ok(Bytes::from_static(b": beat\n\n")), (Stage::Going, id, updates, closing)))
                }
            },
        }
    })
}

fn blocks(id: &mut u64, update: &FileUpdate) -> String {
    let mut text = String::new();
    for event in &update.events {
        text.push_str(&block(id, "file", &json!(event)));
    }
    if update.overflow {
        text.push_str(&block(id, "overflow", &json!({})));
    }
    text
}

fn block(id: &mut u64, name: &str, data: &Value) -> String {
    *id += 1;
    // JSON text contains no line breaks, so one data line is enough.
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use isle_api::ops::watch_files::{FileEvent, FileEventKind};

    use super::*;

    #[test]
    fn an_event_is_one_block_whatever_its_name_contains() {
        let event = FileEvent {
            kind: FileEventKind::Moved,
            path: "a\n\nevent: x".into(),
            from: Some("b".into()),
            directory: false,
        };
        let text = blocks(&mut 0, &FileUpdate { events: vec![event.clone()], overflow: true });
        let data = json!(event);
        assert_eq!(
            text,
            format!("id: 1\nevent: file\ndata: {data}\n\nid: 2\nevent: overflow\ndata: {{}}\n\n")
        );
    }
}
