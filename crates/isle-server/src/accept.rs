//! Accepts connections up to a limit, identifies peers and serves HTTP/1.1; requests in progress are completed
//! at shutdown. Uses hyper directly: one task per connection, no layer between it and the router.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, TRANSFER_ENCODING};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use isle_core::{Code, Error};
use isle_wire::FdStream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::AccessControl;
use crate::app::{App, Peer};
use crate::connection::{Connection, ConnectionState};
use crate::ports::Ports;
use crate::reply::Reply;

/// A TCP client must send the head of a request within this time, idle time included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Limits the head of a request, and the read-ahead of a body.
const READ_BUFFER: usize = 128 * 1024;
/// Delay after a failed `accept` (usually: out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The service behind a listener.
#[derive(Clone)]
pub(crate) enum Service {
    /// The API.
    Api(App),
    /// The proxy for sandbox ports.
    Ports(Arc<Ports>),
}

impl Service {
    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        access: Option<&AccessControl>,
        state: Arc<ConnectionState>,
    ) -> Reply {
        let in_chunks = request.headers().contains_key(TRANSFER_ENCODING);
        let mut reply = match self {
            Self::Api(app) => app.answer(request, peer, access, state.clone()).await,
            Self::Ports(ports) => ports.answer(request, state.clone()).await,
        };
        if reply.status() == StatusCode::SWITCHING_PROTOCOLS {
            state.switch();
        } else if in_chunks {
            // Prevents request smuggling: no further request follows a chunked body.
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        reply
    }
}

/// Shared by the accept loops.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub(crate) service: Service,
    pub(crate) connections: TaskTracker,
    pub(crate) max_connections: usize,
    /// Ends the loops and shuts connections down gracefully.
    pub(crate) closing: CancellationToken,
}

impl Acceptor {
    /// Accepts on the Unix socket. The peer's user comes from SO_PEERCRED.
    pub(crate) async fn unix(self, listener: &UnixListener) {
        let us = rustix::process::getuid().as_raw();
        let slots = Arc::new(Semaphore::new(self.max_connections));
        while let Some((stream, slot)) =
            self.next(&slots, |context| listener.poll_accept(context).map_ok(first)).await
        {
            let peer = match stream.peer_cred() {
                Ok(credentials) if credentials.uid() == us || credentials.uid() == 0 => {
                    Peer::unix(credentials.uid())
                }
                Ok(_) | Err(_) => {
                    self.connections.spawn(async move {
                        Connection::new(stream).reject(StatusCode::FORBIDDEN, wrong_user()).await;
                        drop(slot);
                    });
                    continue;
                }
            };
            let service = self.clone();
            let stream = match stream.into_std().and_then(FdStream::socket) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot set up a connection");
                    continue;
                }
            };
            self.connections.spawn(async move {
                service.serve_connection(stream, peer, None, IdleLimit::None).await;
                drop(slot);
            });
        }
    }

    /// Accepts on TCP. Each request is authenticated separately.
    pub(crate) async fn tcp(self, listener: &TcpListener, access: Option<Arc<AccessControl>>) {
        let slots = Arc::new(Semaphore::new(self.max_connections));
        while let Some((stream, slot)) =
            self.next(&slots, |context| listener.poll_accept(context).map_ok(first)).await
        {
            // A response in two writes would otherwise wait for a delayed ACK.
            let _ = stream.set_nodelay(true);
            let (service, access) = (self.clone(), access.clone());
            self.connections.spawn(async move {
                service.serve_connection(stream, Peer::tcp(), access, IdleLimit::HeadTimeout).await;
                drop(slot);
            });
        }
    }

    /// The next connection, once the limit allows it; `None` when the server shuts down.
    async fn next<S>(
        &self,
        slots: &Arc<Semaphore>,
        accept: impl Fn(&mut Context<'_>) -> Poll<io::Result<S>>,
    ) -> Option<(S, tokio::sync::OwnedSemaphorePermit)> {
        loop {
            let wait = async {
                let slot = slots.clone().acquire_owned().await.ok()?;
                Some((std::future::poll_fn(&accept).await, slot))
            };
            let accepted = tokio::select! {
                accepted = wait => accepted?,
                () = self.closing.cancelled() => return None,
            };
            match accepted {
                (Ok(stream), slot) => return Some((stream, slot)),
                (Err(error), _) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve_connection<S>(
        &self,
        stream: S,
        peer: Peer,
        access: Option<Arc<AccessControl>>,
        idle_limit: IdleLimit,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (behind, socket) = (&self.service, Connection::new(stream));
        let service = service_fn(|request: Request<Incoming>| {
            socket.state.begin();
            let (peer, access, state) = (peer.clone(), access.clone(), socket.state.clone());
            async move { Ok::<_, Infallible>(behind.answer(request, peer, access.as_deref(), state).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).max_buf_size(READ_BUFFER);
        builder.header_read_timeout(match idle_limit {
            IdleLimit::HeadTimeout => Some(HEAD_TIMEOUT),
            IdleLimit::None => None,
        });
        let ended = {
            let connection = builder.serve_connection(TokioIo::new(socket.clone()), service).with_upgrades();
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = self.closing.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        };
        tokio::select! {
            () = socket.finish(ended.as_ref().copied()) => {}
            () = self.closing.cancelled() => {}
        }
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection was closed early");
        }
    }
}

/// The stream of an accepted connection, without its address.
fn first<S, A>((stream, _): (S, A)) -> S {
    stream
}

/// Idle time between requests.
#[derive(Debug, Clone, Copy)]
enum IdleLimit {
    /// `HEAD_TIMEOUT`, for unauthenticated clients.
    HeadTimeout,
    /// Unlimited, for the daemon's own user.
    None,
}

/// The error for another user.
fn wrong_user() -> Error {
    Error::new(Code::Forbidden, "this socket belongs to another user")
        .next("start your own daemon with `isle serve`")
}
