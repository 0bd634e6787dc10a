//! Handles every request: identifies the peer, checks access, calls the router, logs. Also the state shared
//! by all handlers.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use isle_core::values::Namespace;
use isle_core::{Code, Error, Result};
use isle_egress::HeadDefect;
use isle_engine::{CallContext, CallerRole, Door, Engine, Tenant};
use isle_mcp::{McpHandler, McpPeer};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use crate::access::AccessControl;
use crate::body::RequestBody;
use crate::connection::ConnectionState;
use crate::log::RequestLog;
use crate::reply;

/// Header with which the command line identifies itself on the Unix socket, for the audit log.
const DOOR_HEADER: &str = "isle-door";

/// Header with which the operator selects a namespace.
pub(crate) const NAMESPACE_HEADER: &str = "isle-namespace";

/// Header of every response, by which a client detects a daemon of another version without an extra request.
const VERSION_HEADER: &str = "isle-version";

/// Header with the identity of the state directory, sent by clients and by the daemon. The daemon compares it
/// before it handles a request, the client in the response.
const INSTANCE_HEADER: &str = "isle-instance";

/// The state directory of a server.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) id: HeaderValue,
    pub(crate) state_dir: PathBuf,
}

impl Served {
    /// Rejects a caller with another state directory.
    fn check(&self, headers: &HeaderMap) -> Result<()> {
        if headers.get_all(INSTANCE_HEADER).iter().all(|expected| expected == self.id) {
            return Ok(());
        }
        let served = self.state_dir.display();
        Err(Error::new(
            Code::WrongDaemon,
            format!("this daemon serves {served}, but the client expects another state directory"),
        )
        .detail("state_dir", served.to_string())
        .next(format!("add `--state-dir {served}` to use this daemon"))
        .next("or omit `--socket` and ISLE_SOCKET to use the daemon of your state directory"))
    }
}

/// State shared by all handlers.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) mcp: McpHandler,
    pub(crate) version: String,
    pub(crate) state_dir: PathBuf,
    pub(crate) started_at: String,
    /// Connections, upgraded ones included; awaited at shutdown.
    pub(crate) tasks: TaskTracker,
    /// Shuts the server down when cancelled.
    pub(crate) stop: CancellationToken,
    /// Cancelled when the server shuts down; streams end then.
    pub(crate) closing: CancellationToken,
    /// Time an interactive command has after that to send its result.
    pub(crate) last_words: Duration,
    /// The OpenAPI document, built on first request.
    pub(crate) openapi: OnceLock<Bytes>,
}

/// The router and what is needed in front of it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) router: Router,
    pub(crate) log_http: bool,
    /// Checks namespaces; `None` in fixtures.
    pub(crate) engine: Option<Engine>,
    /// Sent in every response.
    pub(crate) version: HeaderValue,
    /// Sent in every response on the Unix socket; `None` in fixtures.
    pub(crate) instance: Option<Served>,
}

/// A caller: listener, identity, namespace and role.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) transport: PeerTransport,
    pub(crate) actor: Arc<str>,
    pub(crate) namespace: Namespace,
    pub(crate) role: CallerRole,
}

/// See [`Peer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerTransport {
    /// The Unix socket: the daemon's own user.
    Unix,
    /// TCP: authenticated by a token.
    Tcp,
}

impl Peer {
    pub(crate) fn unix(uid: u32) -> Self {
        Self::operator(PeerTransport::Unix, format!("uid:{uid}").into())
    }

    /// An unauthenticated caller; access control identifies it in each request.
    pub(crate) fn tcp() -> Self {
        Self::operator(PeerTransport::Tcp, "token:default".into())
    }

    fn operator(transport: PeerTransport, actor: Arc<str>) -> Self {
        Self { transport, actor, namespace: Namespace::default(), role: CallerRole::Operator }
    }

    /// The caller identified by its token.
    fn known_as(self, tenant: Option<Tenant>) -> Self {
        match tenant {
            None => self,
            Some(Tenant { namespace, token }) => {
                Self { actor: format!("token:{token}").into(), namespace, role: CallerRole::Tenant, ..self }
            }
        }
    }

    /// The caller in the namespace selected by its headers. Only the operator may select one; a tenant does not
    /// learn which others exist.
    fn choosing(self, headers: &HeaderMap, engine: Option<&Engine>) -> Result<Self> {
        let mut chosen = headers.get_all(NAMESPACE_HEADER).iter();
        let chosen = match (chosen.next(), chosen.next()) {
            (None, _) => return Ok(self),
            (Some(value), None) => value.to_str().unwrap_or_default().parse::<Namespace>()?,
            (Some(_), Some(_)) => {
                return Err(
                    Error::new(Code::InvalidArgument, "duplicate header Isle-Namespace").next("send it once")
                );
            }
        };
        match (self.role, engine) {
            (CallerRole::Tenant, _) if chosen == self.namespace => Ok(self),
            (CallerRole::Tenant, _) => {
                Err(Error::new(Code::Forbidden, "this token belongs to another namespace")
                    .next("omit the header Isle-Namespace; only the operator may select a namespace"))
            }
            (CallerRole::Operator, None) => Ok(self),
            (CallerRole::Operator, Some(engine)) => {
                engine.check_namespace(&chosen)?;
                Ok(Self { namespace: chosen, ..self })
            }
        }
    }

    /// The same for the MCP handler.
    pub(crate) fn for_mcp(&self) -> McpPeer {
        McpPeer { actor: self.actor.clone(), namespace: self.namespace.clone(), role: self.role }
    }

    /// The context of a call with these headers.
    pub(crate) fn context(&self, headers: &HeaderMap) -> CallContext {
        let is_command_line = self.transport == PeerTransport::Unix
            && headers.get(DOOR_HEADER).is_some_and(|door| door.as_bytes() == b"cli");
        let door = if is_command_line { Door::Cli } else { Door::Http };
        CallContext::new(door, self.actor.as_ref()).within(self.namespace.clone(), self.role)
    }
}

impl App {
    /// Handles one request.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        access: Option<&AccessControl>,
        connection: Arc<ConnectionState>,
    ) -> Response<Body> {
        let logged = self.log_http.then(|| RequestLog::begin(request.method(), request.uri()));
        let actor = logged.is_some().then(|| peer.actor.clone());
        let reply = match connection.next_flaw(&request) {
            Some(flaw) => reject_ambiguous(flaw, &connection),
            None => self.admit(request, peer, access, connection).await,
        };
        if let (Some(logged), Some(actor)) = (logged, actor) {
            logged.end(&actor, reply.status());
        }
        reply
    }

    async fn admit(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        access: Option<&AccessControl>,
        connection: Arc<ConnectionState>,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let local = peer.transport == PeerTransport::Unix;
        let served = self.instance.as_ref().filter(|_| local);
        if let Some(Err(error)) = served.map(|served| served.check(&parts.headers)) {
            let mut rejection = reply::error(&error);
            rejection.headers_mut().insert(VERSION_HEADER, self.version.clone());
            return rejection;
        }
        // Not passed to handlers.
        parts.headers.remove(INSTANCE_HEADER);
        let body = match peer.transport {
            PeerTransport::Unix => RequestBody::unlimited(body, connection.clone()),
            PeerTransport::Tcp => RequestBody::rate_limited(body, connection.clone()),
        };
        let mut admitted = match access.map(|access| access.check(&parts)).transpose() {
            Ok(admitted) => admitted,
            Err(rejection) => return *rejection,
        };
        let tenant = admitted.as_mut().and_then(|admitted| admitted.tenant.take());
        let peer = match peer.known_as(tenant).choosing(&parts.headers, self.engine.as_ref()) {
            Ok(peer) => peer,
            Err(error) => {
                let mut rejection = reply::error(&error);
                if let Some(admitted) = admitted {
                    admitted.add_cors_headers(&mut rejection);
                }
                return rejection;
            }
        };
        parts.extensions.insert(peer.for_mcp());
        parts.extensions.insert(peer);
        let Ok(mut reply) = self.router.clone().call(Request::from_parts(parts, Body::new(body))).await;
        if connection.is_too_slow() {
            let error = Error::new(Code::InvalidArgument, "the request body was sent too slowly")
                .next("send it without long pauses, at 16 KiB/s or more");
            reply = reply::error_with(StatusCode::REQUEST_TIMEOUT, &error);
        }
        reply.headers_mut().insert(VERSION_HEADER, self.version.clone());
        if let Some(served) = served {
            reply.headers_mut().insert(INSTANCE_HEADER, served.id.clone());
        }
        if let Some(admitted) = admitted {
            admitted.add_cors_headers(&mut reply);
        }
        reply
    }
}

/// The response to an ambiguous request.
pub(crate) fn reject_ambiguous(flaw: HeadDefect, connection: &ConnectionState) -> Response<Body> {
    connection.mark_unread();
    let error = Error::new(Code::InvalidArgument, format!("ambiguous request: {flaw}"))
        .next(
            "send one Host, and one Content-Length or exactly `Transfer-Encoding: chunked`, each on a line that ends \
             in CR LF: ambiguous requests allow request smuggling",
        );
    let mut reply = reply::error(&error);
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}
