//! Operations of the registry as routes: arguments from path, query and body become one input,
//! the output is the answer.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::routing::{MethodFilter, MethodRouter, on};
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use isle_engine::ops::{Entry, Method};
use isle_engine::{Code, Error, Result, strict_json};
use isle_mcp::Outlive;
use serde_json::{Map, Value};

use crate::app::{Peer, Shared};
use crate::query::{self, Arguments};
use crate::reply::{self, Reply};
use crate::routes::{MAX_BODY, progress};

/// Where an operation is found, and what answers there.
pub(crate) fn route(entry: &Entry) -> (String, MethodRouter<Arc<Shared>>) {
    let filter = match entry.route.method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Delete => MethodFilter::DELETE,
    };
    let path = format!("/v1{}", entry.route.path);
    let entry = entry.clone();
    let answer = move |State(shared): State<Arc<Shared>>, request: Request| async move {
        call(&shared, &entry, request).await
    };
    (path, on(filter, answer))
}

async fn call(shared: &Shared, entry: &Entry, request: Request) -> Reply {
    let (mut parts, body) = request.into_parts();
    let input = match input(entry.input_schema().as_value(), &mut parts, body).await {
        Ok(input) => input,
        Err(refusal) => return refusal.into_reply(),
    };
    let context = match peer(&parts) {
        Ok(peer) => peer.context(&parts.headers),
        Err(error) => return reply::error(&error),
    };
    let name = entry.name;
    if progress::wanted(&parts.headers) {
        return progress::told(shared, context, name, input);
    }
    let engine = shared.engine.clone();
    reply::outcome(Outlive::new(async move { engine.call(context, name, input).await }).await)
}

/// Who sent the request; every request that passed the door has one.
pub(crate) fn peer(parts: &Parts) -> Result<&Peer> {
    parts.extensions.get::<Peer>().ok_or_else(|| Error::internal("the request came through no known door"))
}

/// A request that is refused before it reaches the engine.
pub(crate) struct Refusal {
    status: Option<StatusCode>,
    error: Error,
}

impl Refusal {
    pub(crate) fn into_reply(self) -> Reply {
        match self.status {
            Some(status) => reply::error_with(status, &self.error),
            None => reply::error(&self.error),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { status: None, error }
    }
}

/// All arguments of a request as one object.
pub(crate) async fn input(schema: &Value, parts: &mut Parts, body: Body) -> Result<Value, Refusal> {
    let mut arguments = Arguments::from_body(json_body(&parts.headers, body).await?);
    arguments.add_texts(schema, &path_texts(parts).await?)?;
    if let Some(text) = parts.uri.query() {
        arguments.add_texts(schema, &query::pairs(text)?)?;
    }
    Ok(arguments.into_value())
}

/// The variable parts of the path, decoded.
pub(crate) async fn path_texts(parts: &mut Parts) -> Result<Vec<(String, String)>> {
    let params = RawPathParams::from_request_parts(parts, &()).await.map_err(|_| {
        Error::new(Code::InvalidArgument, "the path is not percent-encoded UTF-8")
            .next("encode every byte outside A-Z a-z 0-9 - . _ ~ as %XX")
    })?;
    Ok(params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The fields of a JSON body; none when there is no body.
async fn json_body(headers: &HeaderMap, body: Body) -> Result<Map<String, Value>, Refusal> {
    let bytes = collect(body).await?;
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    if !is_json(headers) {
        let error = Error::new(Code::InvalidArgument, "the body is not declared as JSON")
            .next("send it with `Content-Type: application/json`");
        return Err(Refusal { status: Some(StatusCode::UNSUPPORTED_MEDIA_TYPE), error });
    }
    match strict_json::parse(&bytes)? {
        Value::Object(fields) => Ok(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Error::new(Code::InvalidArgument, "the body is not a JSON object")
                .next("send the arguments as one JSON object")
                .into())
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let declared = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = declared.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The body in memory. A small one, the usual case, is not copied.
pub(crate) async fn collect(mut body: Body) -> Result<Bytes, Refusal> {
    let Some(first) = next_piece(&mut body).await? else { return Ok(Bytes::new()) };
    if body.is_end_stream() && first.len() <= MAX_BODY {
        return Ok(first);
    }
    let mut all = BytesMut::from(first);
    while all.len() <= MAX_BODY {
        match next_piece(&mut body).await? {
            Some(piece) => all.extend_from_slice(&piece),
            None => return Ok(all.freeze()),
        }
    }
    Err(too_large())
}

async fn next_piece(body: &mut Body) -> Result<Option<Bytes>> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Error::new(Code::InvalidArgument, format!("the body ended early: {error}"))
                .next("send the whole body")
        })?;
        if let Ok(piece) = frame.into_data() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

fn too_large() -> Refusal {
    Error::new(Code::TooLarge, format!("the body is larger than {MAX_BODY} bytes"))
        .next("send large files with PUT /v1/sandboxes/{sandbox}/files/content?path=…")
        .into()
}
