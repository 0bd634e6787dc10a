//! MCP over HTTP, served by the SDK. Bodies are limited and parsed strictly here, and plain-text errors of the
//! SDK get the same JSON form as all errors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::routing::{MethodRouter, any};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};
use isle_api::Toolsets;
use isle_core::{Code, Error, strict_json};
use isle_mcp::{HttpOptions, HttpService, MAX_SESSIONS, McpPeer, ServerHandler, Sessions, http_service};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::query::pairs;
use crate::reply::{self, Reply};
use crate::routes::MAX_BODY;
use crate::routes::operations::collect;

/// JSON-RPC parse error.
const PARSE_ERROR: i32 = -32700;
/// Maximum length of an error message of the SDK.
const MAX_MESSAGE: usize = 2000;

/// The routes of `/mcp`, for the daemon's handler and for fixtures.
pub fn mcp_routes<H, S>(handler: H, shutdown: CancellationToken) -> MethodRouter<S>
where
    H: ServerHandler + Clone,
    S: Clone + Send + Sync + 'static,
{
    let (service, sessions) = http_service(handler, HttpOptions { shutdown, max_body_bytes: MAX_BODY });
    let owners = Arc::new(Owners::default());
    any(async move |request: Request| answer(&service, &sessions, &owners, request).await)
}

async fn answer<H>(service: &HttpService<H>, sessions: &Sessions, owners: &Owners, request: Request) -> Reply
where
    H: ServerHandler + Clone,
{
    let (mut parts, body) = request.into_parts();
    match chosen_toolsets(parts.uri.query()) {
        Ok(None) => {}
        Ok(Some(toolsets)) => drop(parts.extensions.insert(toolsets)),
        Err(error) => return reply::error(&error),
    }
    let peer = parts.extensions.get::<McpPeer>().cloned();
    if let Some(session) = text_of(&parts.headers)
        && !owners.has(session, peer.as_ref())
    {
        return reply::error_with(StatusCode::NOT_FOUND, &no_such_session());
    }
    let mut bytes = Bytes::new();
    if parts.method == Method::POST {
        bytes = match collect(body).await {
            Ok(bytes) => bytes,
            Err(rejection) => return rejection.into_reply(),
        };
        let message = match strict_json::parse(&bytes) {
            Ok(message) => message,
            Err(error) => return unreadable(&error),
        };
        if message["method"] == "initialize" && !sessions.has_room().await {
            return reply::error(&too_many_sessions());
        }
    }
    let reply = service.handle(Request::from_parts(parts, Full::new(bytes))).await;
    if let (Some(session), Some(peer)) = (text_of(reply.headers()), peer) {
        owners.put(session, peer, sessions).await;
    }
    let kind = reply.headers().get(CONTENT_TYPE);
    let is_bare = kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if reply.status().is_client_error() && is_bare {
        return as_json_error(reply.map(Body::new)).await;
    }
    reply.map(Body::new)
}

const SESSION_HEADER: &str = "mcp-session-id";

fn text_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_HEADER).and_then(|value| value.to_str().ok())
}

/// Owners of sessions. A session of another owner is reported as not found, to other tenants and to other tokens
/// of the same tenant.
#[derive(Debug, Default)]
struct Owners(Mutex<HashMap<String, McpPeer>>);

impl Owners {
    fn has(&self, session: &str, peer: Option<&McpPeer>) -> bool {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The SDK rejects unknown sessions.
        owners.get(session).is_none_or(|owner| {
            peer.is_some_and(|peer| peer.actor == owner.actor && peer.namespace == owner.namespace)
        })
    }

    async fn put(&self, session: &str, peer: McpPeer, sessions: &Sessions) {
        let known: Vec<String> = {
            let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            owners.entry(session.to_owned()).or_insert(peer);
            if owners.len() <= 2 * MAX_SESSIONS {
                return;
            }
            owners.keys().cloned().collect()
        };
        let open = sessions.open_among(known.iter()).await;
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|session, _| open.contains(session));
    }
}

/// The same error as for an unknown session.
fn no_such_session() -> Error {
    Error::new(Code::InvalidArgument, "Not Found: Session not found")
        .next("open a new session with `initialize`")
}

/// The toolsets of `?toolsets=`. A client sends it with every request, so that it is not stored in the session.
pub(super) fn chosen_toolsets(query: Option<&str>) -> Result<Option<Toolsets>, Error> {
    let mut chosen = None;
    for (name, value) in pairs(query.unwrap_or_default())? {
        if name != "toolsets" || chosen.is_some() {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("unknown or duplicate query parameter: {name:?}"),
            )
            .next("use only `toolsets`, once, such as ?toolsets=core,files"));
        }
        chosen = Some(value.parse()?);
    }
    Ok(chosen)
}

fn unreadable(error: &Error) -> Reply {
    let refused = json!({ "code": PARSE_ERROR, "message": error.message, "data": error.to_json() });
    let answer = json!({ "jsonrpc": "2.0", "id": null, "error": refused });
    reply::json_with(StatusCode::BAD_REQUEST, &answer)
}

fn too_many_sessions() -> Error {
    Error::new(Code::Busy, format!("too many MCP sessions: {MAX_SESSIONS} are open"))
        .next("close sessions with DELETE /mcp when done; idle sessions expire after a day")
        .next("or use protocol revision 2026-07-28, which has no sessions")
}

/// Converts an error of the SDK to JSON, keeping status and headers.
async fn as_json_error(reply: Reply) -> Reply {
    let (parts, body) = reply.into_parts();
    let message = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let message = isle_mcp::truncate_escaped(&String::from_utf8_lossy(&message), MAX_MESSAGE);
    let next = match parts.status {
        StatusCode::NOT_FOUND => "open a new session with `initialize`",
        StatusCode::METHOD_NOT_ALLOWED => {
            "send messages with POST, receive with GET, close a session with DELETE"
        }
        StatusCode::NOT_ACCEPTABLE => "send `Accept: application/json, text/event-stream`",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            "send one JSON-RPC message with `Content-Type: application/json`"
        }
        _ => "see the transport section of the protocol's specification",
    };
    let message =
        if message.is_empty() { parts.status.canonical_reason().unwrap_or_default().into() } else { message };
    let mut answer = reply::error_with(parts.status, &Error::new(Code::InvalidArgument, message).next(next));
    for (name, value) in &parts.headers {
        if !answer.headers().contains_key(name) && name != http::header::CONTENT_LENGTH {
            answer.headers_mut().append(name, value.clone());
        }
    }
    answer
}
