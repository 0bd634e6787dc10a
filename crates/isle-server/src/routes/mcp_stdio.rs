//! The byte stream of `isle mcp`: an HTTP/1.1 upgrade, after which the connection is an MCP session as on stdio.
//! Unix socket only; remote clients use `/mcp`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use isle_core::{Code, Error};

use crate::app::{PeerTransport, Shared};
use crate::reply::{self, Reply};
use crate::routes::mcp::chosen_toolsets;
use crate::routes::operations::peer;

const PROTOCOL: &str = "isle-mcp";

pub(crate) async fn upgrade(State(shared): State<Arc<Shared>>, mut request: Request) -> Reply {
    let on_upgrade = hyper::upgrade::on(&mut request);
    let (parts, _) = request.into_parts();
    let peer = match peer(&parts) {
        Ok(peer) if peer.transport == PeerTransport::Unix => peer.clone(),
        Ok(_) => {
            let error =
                Error::new(Code::Forbidden, "the MCP byte stream is available on the Unix socket only")
                    .next("use MCP over HTTP at /mcp");
            return reply::error(&error);
        }
        Err(error) => return reply::error(&error),
    };
    let asks = parts
        .headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(PROTOCOL.as_bytes()));
    if !asks {
        let error = Error::new(Code::InvalidArgument, "this route requires an upgrade to `isle-mcp`")
            .next("send `Connection: Upgrade` and `Upgrade: isle-mcp`, as `isle mcp` does");
        let mut reply = reply::error_with(StatusCode::UPGRADE_REQUIRED, &error);
        reply.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
        return reply;
    }
    let handler = match chosen_toolsets(parts.uri.query()) {
        Ok(None) => shared.mcp.clone(),
        Ok(Some(toolsets)) => shared.mcp.with_toolsets(toolsets),
        Err(error) => return reply::error(&error),
    };
    shared.clone().tasks.spawn(async move {
        let stream = match on_upgrade.await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => {
                tracing::debug!(%error, "a connection was closed before the upgrade to MCP");
                return;
            }
        };
        if let Err(error) =
            isle_mcp::serve_stream(&handler, stream, peer.for_mcp(), shared.closing.clone()).await
        {
            tracing::debug!(%error, "an MCP session failed");
        }
    });
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    reply
}
