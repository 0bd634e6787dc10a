//! Is it alive, is it ready, what is it, and make it stop.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use isle_engine::{Code, Error};
use serde_json::json;

use crate::app::{Peer, PeerTransport, Shared};
use crate::reply::{self, Reply};

/// Version of the HTTP interface: the `1` in `/v1`.
const API: u32 = 1;

pub(crate) async fn alive() -> Reply {
    reply::bytes_with(StatusCode::OK, r#"{"status":"ok"}"#)
}

pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> Reply {
    if shared.closing.is_cancelled() {
        let error =
            Error::new(Code::DaemonUnavailable, "the daemon is going down").next("try again in a moment");
        return reply::error(&error);
    }
    reply::bytes_with(StatusCode::OK, r#"{"status":"ready"}"#)
}

pub(crate) async fn version(State(shared): State<Arc<Shared>>) -> Reply {
    reply::json(&json!({
        "version": shared.version,
        "pid": std::process::id(),
        "started_at": shared.started_at,
        "state_dir": shared.state_dir,
        "api": API,
    }))
}

pub(crate) async fn shutdown(State(shared): State<Arc<Shared>>, Extension(peer): Extension<Peer>) -> Reply {
    if peer.transport != PeerTransport::Unix {
        let error = Error::new(Code::Forbidden, "the daemon can be ended through its Unix socket only")
            .next("run `isle stop` on its machine");
        return reply::error(&error);
    }
    shared.stop.cancel();
    reply::json_with(StatusCode::ACCEPTED, &json!({ "status": "going down" }))
}
