//! Operations of the registry as routes. Reading operations take arguments from path and query; changing ones
//! from path and a body declared as JSON only, which a link, form or redirect cannot send.

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
use isle_api::{Definition, Method};
use isle_core::{Code, Error, Result, strict_json};
use isle_mcp::RunToCompletion;
use serde_json::{Map, Value};

use crate::app::{Peer, Shared};
use crate::query::{self, Arguments};
use crate::reply::{self, Reply};
use crate::routes::{MAX_BODY, progress};

/// Path and handler of an operation.
pub(crate) fn route(entry: &Definition) -> (String, MethodRouter<Arc<Shared>>) {
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

async fn call(shared: &Shared, entry: &Definition, request: Request) -> Reply {
    let (mut parts, body) = request.into_parts();
    let schema = entry.input_schema().as_value();
    let read = match entry.route.method {
        Method::Get => query_input(schema, &mut parts, body).await,
        Method::Post | Method::Delete => body_input(schema, &mut parts, body).await,
    };
    let input = match read {
        Ok(input) => input,
        Err(rejection) => return rejection.into_reply(),
    };
    let context = match peer(&parts) {
        Ok(peer) => peer.context(&parts.headers),
        Err(error) => return reply::error(&error),
    };
    let name = entry.name;
    if progress::wanted(&parts.headers) {
        return progress::stream_progress(shared, context, name, input);
    }
    let engine = shared.engine.clone();
    reply::outcome(RunToCompletion::new(async move { engine.call(context, name, input).await }).await)
}

/// The caller; every request that passed access control has one.
pub(crate) fn peer(parts: &Parts) -> Result<&Peer> {
    parts.extensions.get::<Peer>().ok_or_else(|| Error::internal("the request has no peer"))
}

/// A request that is rejected before it reaches the engine.
pub(crate) struct Rejection {
    status: Option<StatusCode>,
    error: Error,
}

impl Rejection {
    pub(crate) fn into_reply(self) -> Reply {
        match self.status {
            Some(status) => reply::error_with(status, &self.error),
            None => reply::error(&self.error),
        }
    }
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Self { status: None, error }
    }
}

/// The arguments of a reading operation.
async fn query_input(schema: &Value, parts: &mut Parts, body: Body) -> Result<Value, Rejection> {
    let mut arguments = Arguments::from_body(json_body(parts, body).await?);
    arguments.add_texts(schema, &path_texts(parts).await?)?;
    if let Some(text) = parts.uri.query() {
        arguments.add_texts(schema, &query::pairs(text)?)?;
    }
    Ok(arguments.into_value())
}

/// The arguments of a changing operation; none of them is in the query.
pub(crate) async fn body_input(schema: &Value, parts: &mut Parts, body: Body) -> Result<Value, Rejection> {
    if parts.uri.query().is_some_and(|query| !query.is_empty()) {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("{} does not accept arguments in the query", parts.method),
        )
        .next("send them as a JSON object in the body, with `Content-Type: application/json`")
        .into());
    }
    let mut arguments = Arguments::from_body(json_body(parts, body).await?);
    arguments.add_texts(schema, &path_texts(parts).await?)?;
    Ok(arguments.into_value())
}

/// The variable parts of the path, decoded.
pub(crate) async fn path_texts(parts: &mut Parts) -> Result<Vec<(String, String)>> {
    let params = RawPathParams::from_request_parts(parts, &()).await.map_err(|_| {
        Error::new(Code::InvalidArgument, "invalid percent-encoded UTF-8 in the path")
            .next("encode every byte outside A-Z a-z 0-9 - . _ ~ as %XX")
    })?;
    Ok(params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The fields of a JSON body; none without a body. `POST` must declare it even then: any web page can send a
/// request without that header.
async fn json_body(parts: &Parts, body: Body) -> Result<Map<String, Value>, Rejection> {
    if parts.method == http::Method::POST {
        declared_as(&parts.headers, &["application/json"])?;
    }
    let bytes = collect(body).await?;
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    declared_as(&parts.headers, &["application/json"])?;
    match strict_json::parse(&bytes)? {
        Value::Object(fields) => Ok(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Error::new(Code::InvalidArgument, "the request body is not a JSON object")
                .next("send the arguments as one JSON object")
                .into())
        }
    }
}

/// Rejects a body that is not declared as one of these types.
pub(crate) fn declared_as(headers: &HeaderMap, types: &[&str]) -> Result<(), Rejection> {
    let mut declared = headers.get_all(CONTENT_TYPE).iter();
    let text = match (declared.next(), declared.next()) {
        (Some(value), None) => value.to_str().unwrap_or_default(),
        _ => "",
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    if types.iter().any(|wanted| essence.eq_ignore_ascii_case(wanted)) {
        return Ok(());
    }
    let wanted = types.join("` or `");
    let error = Error::new(Code::InvalidArgument, format!("unsupported content type; expected `{wanted}`"))
        .next(format!("send `Content-Type: {}`, even with an empty body", types[0]));
    Err(Rejection { status: Some(StatusCode::UNSUPPORTED_MEDIA_TYPE), error })
}

/// Reads the body into memory. A small body is not copied.
pub(crate) async fn collect(mut body: Body) -> Result<Bytes, Rejection> {
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
            Error::new(Code::InvalidArgument, format!("incomplete request body: {error}"))
                .next("send the whole body")
        })?;
        if let Ok(piece) = frame.into_data() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

fn too_large() -> Rejection {
    Error::new(Code::TooLarge, format!("request body exceeds {MAX_BODY} bytes"))
        .next("send large files with PUT /v1/sandboxes/{sandbox}/files/content?path=…")
        .into()
}
