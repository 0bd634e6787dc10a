//! What every request meets: its peer is noted, the guard asked, the router called, the line
//! logged. And what every handler shares.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use isle_engine::values::Namespace;
use isle_engine::{Authority, CallContext, Code, Door, Engine, Error, Result, Tenant};
use isle_mcp::{McpHandler, McpPeer};
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

/// The header by which the operator chooses a namespace.
pub(crate) const NAMESPACE_HEADER: &str = "isle-namespace";

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
    /// The OpenAPI document, once somebody has asked for it.
    pub(crate) openapi: OnceLock<Bytes>,
}

/// The router with what stands in front of it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) router: Router,
    pub(crate) log_http: bool,
    /// Knows the namespaces; `None` for fixtures.
    pub(crate) engine: Option<Engine>,
    /// Named in every answer.
    pub(crate) version: HeaderValue,
}

/// Through which listener a caller came, as whom, and where it may work.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) transport: PeerTransport,
    pub(crate) actor: Arc<str>,
    pub(crate) namespace: Namespace,
    pub(crate) authority: Authority,
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
        Self::operator(PeerTransport::Unix, format!("uid:{uid}").into())
    }

    /// Whoever it is: the guard says more, request by request.
    pub(crate) fn tcp() -> Self {
        Self::operator(PeerTransport::Tcp, "token:default".into())
    }

    fn operator(transport: PeerTransport, actor: Arc<str>) -> Self {
        Self { transport, actor, namespace: Namespace::default(), authority: Authority::Operator }
    }

    /// The caller as the guard knows it by its token.
    fn known_as(self, tenant: Option<Tenant>) -> Self {
        match tenant {
            None => self,
            Some(Tenant { namespace, token }) => Self {
                actor: format!("token:{token}").into(),
                namespace,
                authority: Authority::Tenant,
                ..self
            },
        }
    }

    /// The caller in the namespace its headers choose. Whoever is not the operator has no choice, and is
    /// not told which others there are.
    fn choosing(self, headers: &HeaderMap, engine: Option<&Engine>) -> Result<Self> {
        let mut chosen = headers.get_all(NAMESPACE_HEADER).iter();
        let chosen = match (chosen.next(), chosen.next()) {
            (None, _) => return Ok(self),
            (Some(value), None) => value.to_str().unwrap_or_default().parse::<Namespace>()?,
            (Some(_), Some(_)) => {
                return Err(Error::new(Code::InvalidArgument, "the header Isle-Namespace is given twice")
                    .next("send it once"));
            }
        };
        match (self.authority, engine) {
            (Authority::Tenant, _) if chosen == self.namespace => Ok(self),
            (Authority::Tenant, _) => {
                Err(Error::new(Code::Forbidden, "this token is for one namespace, and not for that one")
                    .next("leave the header Isle-Namespace out; only the operator chooses"))
            }
            (Authority::Operator, None) => Ok(self),
            (Authority::Operator, Some(engine)) => {
                engine.check_namespace(&chosen)?;
                Ok(Self { namespace: chosen, ..self })
            }
        }
    }

    /// The same for the MCP door.
    pub(crate) fn for_mcp(&self) -> McpPeer {
        McpPeer { actor: self.actor.clone(), namespace: self.namespace.clone(), authority: self.authority }
    }

    /// The context of a call that came with these headers.
    pub(crate) fn context(&self, headers: &HeaderMap) -> CallContext {
        let is_command_line = self.transport == PeerTransport::Unix
            && headers.get(DOOR_HEADER).is_some_and(|door| door.as_bytes() == b"cli");
        let door = if is_command_line { Door::Cli } else { Door::Http };
        CallContext::new(door, self.actor.as_ref()).within(self.namespace.clone(), self.authority)
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
        let mut admitted = match guard.map(|guard| guard.check(&parts)).transpose() {
            Ok(admitted) => admitted,
            Err(refusal) => return *refusal,
        };
        let tenant = admitted.as_mut().and_then(|admitted| admitted.tenant.take());
        let peer = match peer.known_as(tenant).choosing(&parts.headers, self.engine.as_ref()) {
            Ok(peer) => peer,
            Err(error) => {
                let mut refusal = reply::error(&error);
                if let Some(admitted) = admitted {
                    admitted.dress(&mut refusal);
                }
                return refusal;
            }
        };
        parts.extensions.insert(peer.for_mcp());
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
