//! Responses: JSON for results, `{"error": {...}}` for errors, with the HTTP status of the code.

use axum::body::Body;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use isle_core::{Code, Error};
use serde::Serialize;
use serde_json::json;

pub(crate) type Reply = Response<Body>;

/// A result.
pub(crate) fn json(value: &impl Serialize) -> Reply {
    json_with(StatusCode::OK, value)
}

/// A result with another status.
pub(crate) fn json_with(status: StatusCode, value: &impl Serialize) -> Reply {
    match serde_json::to_vec(value) {
        Ok(bytes) => bytes_with(status, bytes),
        Err(failure) => error(&Error::internal(failure)),
    }
}

/// Serialized JSON.
pub(crate) fn bytes_with(status: StatusCode, bytes: impl Into<Body>) -> Reply {
    let mut reply = Response::new(bytes.into());
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// An error with the status of its code.
pub(crate) fn error(error: &Error) -> Reply {
    let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    error_with(status, error)
}

/// A transport error with a more specific status than that of its code.
pub(crate) fn error_with(status: StatusCode, error: &Error) -> Reply {
    let body = json!({ "error": error.to_json() }).to_string();
    let mut reply = bytes_with(status, body);
    if error.code == Code::Unauthenticated {
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"isle\""));
    }
    if let Some(seconds) = error.details.get("retry_after_seconds").and_then(serde_json::Value::as_u64) {
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    reply
}

/// The response to a call.
pub(crate) fn outcome<T: Serialize>(outcome: Result<T, Error>) -> Reply {
    match outcome {
        Ok(value) => json(&value),
        Err(failure) => error(&failure),
    }
}
