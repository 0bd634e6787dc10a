//! Liveness, readiness, version and shutdown.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use isle_core::{Code, Error};
use isle_engine::CallerRole;
use serde_json::json;

use crate::app::{Peer, PeerTransport, Shared};
use crate::reply::{self, Reply};
use crate::routes::operations::declared_as;

/// Version of the HTTP interface: the `1` in `/v1`.
const API: u32 = 1;

pub(crate) async fn alive() -> Reply {
    reply::bytes_with(StatusCode::OK, r#"{"status":"ok"}"#)
}

pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> Reply {
    if shared.closing.is_cancelled() {
        let error =
            Error::new(Code::DaemonUnavailable, "the daemon is shutting down").next("retry in a moment");
        return reply::error(&error);
    }
    reply::bytes_with(StatusCode::OK, r#"{"status":"ready"}"#)
}

pub(crate) async fn version(State(shared): State<Arc<Shared>>, Extension(peer): Extension<Peer>) -> Reply {
    let mut answer = json!({ "version": shared.version, "api": API });
    // Process and paths are visible to the operator only.
    if peer.role == CallerRole::Operator {
        answer["pid"] = json!(std::process::id());
        answer["started_at"] = json!(shared.started_at);
        answer["state_dir"] = json!(shared.state_dir);
    }
    reply::json(&answer)
}

pub(crate) async fn shutdown(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Reply {
    if peer.transport != PeerTransport::Unix {
        let error = Error::new(Code::Forbidden, "the daemon can be stopped through its Unix socket only")
            .next("run `isle stop` on the daemon's host");
        return reply::error(&error);
    }
    if let Err(rejection) = declared_as(&headers, &["application/json"]) {
        return rejection.into_reply();
    }
    shared.stop.cancel();
    reply::json_with(StatusCode::ACCEPTED, &json!({ "status": "shutting down" }))
}
