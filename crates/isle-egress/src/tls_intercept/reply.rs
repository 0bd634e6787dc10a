//! Responses that the gate itself sends to a program.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use crate::masking::response::MaskedBody;
use crate::policy::denial::{Denial, Reason};
use crate::tls_intercept::upstream::UpstreamError;

/// A response of the gate, or of the server.
pub(super) type Answer = Response<Either<Incoming, Either<Full<Bytes>, MaskedBody>>>;

/// Why a request is not forwarded.
pub(super) enum RequestFailure {
    Denied(Denial),
    UpstreamError(UpstreamError),
}

impl From<Denial> for RequestFailure {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl From<UpstreamError> for RequestFailure {
    fn from(unreached: UpstreamError) -> Self {
        Self::UpstreamError(unreached)
    }
}

/// A response of the gate.
pub(super) fn gate_response(status: StatusCode, body: String, reason: Option<Reason>) -> Answer {
    let mut response = Response::new(Either::Right(Either::Left(Full::new(Bytes::from(body)))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if let Some(reason) = reason {
        headers.insert("x-isle-denied", HeaderValue::from_static(reason.as_str()));
    }
    response
}
