//! What every request meets: its peer is noted, the guard asked, the router called, the line
//! logged. And what every handler shares.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::{CONNECTION, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use isle_engine::{CallContext, Code, Door, Engine, Error};
use isle_mcp::{McpHandler, PeerActor};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use crate::body::RequestBody;
use crate::guard::Guard;
use crate::line::LineState;
use crate::log::Line;
use crate::reply;

/// The header by which our own command line makes itself known on the Unix socket, for the audit.
const DOOR_HEADER: &str = "isle-door";

/// The header by which a client notices, at no extra cost, that the daemon is of another version.
const VERSION_HEADER: &str = "isle-version";

/// What handlers share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) mcp: McpHandler,
    pub(crate) version: String,
    pub(crate) state_dir: PathBuf,
    pub(crate) started_at: String,
    /// Connections and what they became after an upgrade; counted to know when all have ended.
    pub(crate) tasks: TaskTracker,
    /// Firing it makes the server go down.
    pub(crate) stop: CancellationToken,
    /// Fires when the server goes down; streams end then.
    pub(crate) closing: CancellationToken,
    /// How long an interactive command may take after that to be told its end.
    pub(crate) last_words: Duration,
}

/// The router with what stands in front of it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) router: Router,
    pub(crate) log_http: bool,
    /// Named in every answer.
    pub(crate) version: HeaderValue,
}

/// Through which listener a caller came, and as whom.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) transport: PeerTransport,
    pub(crate) actor: Arc<str>,
}

/// See [`Peer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerTransport {
    /// The Unix socket: our own user.
    Unix,
    /// TCP: whoever has the token.
    Tcp,
}

impl Peer {
    pub(crate) fn unix(uid: u32) -> Self {
        Self { transport: PeerTransport::Unix, actor: format!("uid:{uid}").into() }
    }

    pub(crate) fn tcp() -> Self {
        Self { transport: PeerTransport::Tcp, actor: "token:default".into() }
    }

    /// The context of a call that came with these headers.
    pub(crate) fn context(&self, headers: &HeaderMap) -> CallContext {
        let is_command_line = self.transport == PeerTransport::Unix
            && headers.get(DOOR_HEADER).is_some_and(|door| door.as_bytes() == b"cli");
        let door = if is_command_line { Door::Cli } else { Door::Http };
        CallContext::new(door, self.actor.as_ref())
    }
}

impl App {
    /// Answers one request.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        guard: Option<&Guard>,
        line: Arc<LineState>,
    ) -> Response<Body> {
        let logged = self.log_http.then(|| Line::begin(request.method(), request.uri()));
        let actor = logged.is_some().then(|| peer.actor.clone());
        let in_chunks = request.headers().contains_key(TRANSFER_ENCODING);
        let mut reply = match in_chunks && line.is_twofold() {
            true => reply::error(&twofold()),
            false => self.admit(request, peer, guard, line).await,
        };
        if in_chunks {
            // See `framing`: what comes after chunks is not read.
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let (Some(logged), Some(actor)) = (logged, actor) {
            logged.end(&actor, reply.status());
        }
        reply
    }

    async fn admit(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        guard: Option<&Guard>,
        line: Arc<LineState>,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let body = match peer.transport {
            PeerTransport::Unix => RequestBody::patient(body, line.clone()),
            PeerTransport::Tcp => RequestBody::paced(body, line.clone()),
        };
        let admitted = match guard.map(|guard| guard.check(&parts)).transpose() {
            Ok(admitted) => admitted,
            Err(refusal) => return *refusal,
        };
        parts.extensions.insert(PeerActor(peer.actor.clone()));
        parts.extensions.insert(peer);
        let Ok(mut reply) = self.router.clone().call(Request::from_parts(parts, Body::new(body))).await;
        if line.is_too_slow() {
            let error = Error::new(Code::InvalidArgument, "the body came too slowly")
                .next("send it without long pauses, at 16 KiB a second or more");
            reply = reply::error_with(StatusCode::REQUEST_TIMEOUT, &error);
        }
        reply.headers_mut().insert(VERSION_HEADER, self.version.clone());
        if let Some(admitted) = admitted {
            admitted.dress(&mut reply);
        }
        reply
    }
}

/// A request whose end is said by its length and by its chunks.
fn twofold() -> Error {
    Error::new(Code::InvalidArgument, "the request has both Content-Length and Transfer-Encoding")
        .next("send one of them: two ways to tell where a request ends can hide another one")
}
