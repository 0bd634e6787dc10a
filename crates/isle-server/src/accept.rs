//! Connections: accepted within a limit, identified, spoken HTTP/1.1 to, and let finish what they
//! have under way when the server goes down. Hyper is driven directly: one task per connection,
//! no layer between it and the router.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use isle_engine::{Code, Error};
use isle_wire::QuietSocket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, Peer};
use crate::guard::Guard;
use crate::line::Line;

/// A caller on TCP has to send the head of its request within this time, idle time included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bounds the head of a request, and how much of a body is read ahead.
const READ_BUFFER: usize = 128 * 1024;
/// After `accept` failed (usually: out of file descriptors) others get time to close theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the accept loops share.
#[derive(Clone)]
pub(crate) struct Doorway {
    pub(crate) app: App,
    pub(crate) connections: TaskTracker,
    pub(crate) max_connections: usize,
    /// Ends the loops and asks connections to finish.
    pub(crate) closing: CancellationToken,
}

impl Doorway {
    /// Accepts on the Unix socket. The peer's user is read from the kernel.
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
                        Line::new(stream).turn_away(StatusCode::FORBIDDEN, foreign()).await;
                        drop(slot);
                    });
                    continue;
                }
            };
            let service = self.clone();
            let stream = match stream.into_std().and_then(QuietSocket::new) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken over");
                    continue;
                }
            };
            self.connections.spawn(async move {
                service.converse(stream, peer, None, Patience::Endless).await;
                drop(slot);
            });
        }
    }

    /// Accepts on TCP. Who calls is decided request by request.
    pub(crate) async fn tcp(self, listener: &TcpListener, guard: Arc<Guard>) {
        let slots = Arc::new(Semaphore::new(self.max_connections));
        while let Some((stream, slot)) =
            self.next(&slots, |context| listener.poll_accept(context).map_ok(first)).await
        {
            // Answers in two writes would otherwise wait for the other side's delayed acknowledgement.
            let _ = stream.set_nodelay(true);
            let (service, guard) = (self.clone(), guard.clone());
            self.connections.spawn(async move {
                service.converse(stream, Peer::tcp(), Some(guard), Patience::Short).await;
                drop(slot);
            });
        }
    }

    /// The next connection, as soon as there is room for it; `None` when the server goes down.
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
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn converse<S>(&self, stream: S, peer: Peer, guard: Option<Arc<Guard>>, patience: Patience)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (app, line) = (&self.app, Line::new(stream));
        let service = service_fn(|request: Request<Incoming>| {
            line.state.begin();
            let (peer, guard, line) = (peer.clone(), guard.clone(), line.state.clone());
            async move { Ok::<_, Infallible>(app.answer(request, peer, guard.as_deref(), line).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).max_buf_size(READ_BUFFER);
        builder.header_read_timeout(match patience {
            Patience::Short => Some(HEAD_TIMEOUT),
            Patience::Endless => None,
        });
        let ended = {
            let connection = builder.serve_connection(TokioIo::new(line.clone()), service).with_upgrades();
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
            () = line.farewell(ended.as_ref().copied()) => {}
            () = self.closing.cancelled() => {}
        }
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// The stream of an accepted connection; its address says nothing we need.
fn first<S, A>((stream, _): (S, A)) -> S {
    stream
}

/// How long a connection may stay silent between requests.
#[derive(Debug, Clone, Copy)]
enum Patience {
    /// For callers nobody knows yet.
    Short,
    /// For our own user.
    Endless,
}

/// What another user is told.
fn foreign() -> Error {
    Error::new(Code::Forbidden, "this socket belongs to another user")
        .next("start your own daemon with `isle serve`")
}
