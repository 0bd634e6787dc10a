//! Routes that were removed (410 Gone).

use http::StatusCode;
use isle_core::{Code, Error};

use crate::reply::{self, Reply};

/// Ports of sandboxes. They are not proxied at the origin of the API: a redirect by a program in a sandbox would
/// be followed with the caller's credentials.
pub(crate) async fn ports() -> Reply {
    let error = Error::new(Code::OperationNotFound, "sandbox ports are not proxied at this address")
        .next("get a URL and a ticket with POST /v1/sandboxes/{sandbox}/ports/{port}/url or `isle url NAME PORT`")
        .next("use GET /v1/sandboxes/{sandbox}/ports/{port} to wait until a port accepts connections");
    reply::error_with(StatusCode::GONE, &error)
}
