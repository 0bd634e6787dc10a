//! Connections whose bytes the agent carries itself, because sockets cannot be passed to the host. Each waits
//! here under its cookie until the host opens a stream for it; then bytes are copied both ways. FIN and RST of
//! either side reach the other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use isle_wire::{CarriedStream, CarryRequest, FrameError, Stream};
use rustix::net::{AddressFamily, Shutdown, sockopt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::guest_stream::GuestStream;
use crate::serve::Shared;

/// Maximum number of announced connections for which the host has not opened a stream.
const MAX_WAITING: usize = 512;
/// Bytes copied at a time: few at first, since most connections never have more, and the buffer of an idle one
/// counts as memory of the sandbox.
const FIRST_PORTION: usize = 4 * 1024;
const PORTION: usize = 64 * 1024;

/// Connections that wait for the host, by cookie. Dropping them resets them.
#[derive(Default)]
pub(super) struct Waiting(RefCell<HashMap<u64, OwnedFd>>);

impl Waiting {
    /// Keeps a connection until the host asks for it. One too many is reset.
    pub(super) fn insert(&self, cookie: u64, socket: OwnedFd) {
        let mut waiting = self.0.borrow_mut();
        if waiting.len() < MAX_WAITING {
            waiting.insert(cookie, socket);
        }
    }

    fn take(&self, cookie: u64) -> Option<OwnedFd> {
        self.0.borrow_mut().remove(&cookie)
    }

    /// Resets all of them.
    pub(super) fn clear(&self) {
        self.0.take();
    }
}

/// Carries an announced connection on the stream the host opened for it.
pub(crate) async fn carry(stream: Stream, agent: Shared, request: &CarryRequest) -> Result<(), FrameError> {
    // Without it the stream is dropped, which the host takes for a reset.
    if let Some(socket) = agent.network.waiting.take(request.connection) {
        copy(socket, stream).await.ok();
    }
    Ok(())
}

/// Copies between a socket and the stream that carries it, until both directions have ended.
pub(super) async fn copy(socket: OwnedFd, stream: Stream) -> io::Result<()> {
    if sockopt::socket_domain(&socket)? == AddressFamily::UNIX {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let (from, to) = tokio::io::split(GuestStream::new(UnixStream::from_std(socket)?));
        return both(from, to, stream, |to| Box::pin(async move { to.shutdown().await })).await;
    }
    // Until a FIN was sent, closing it is a reset.
    sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    let socket = std::net::TcpStream::from(socket);
    socket.set_nonblocking(true)?;
    let mut socket = TcpStream::from_std(socket)?;
    // Borrowed halves: an owned one sends a FIN when it is dropped.
    let (from, to) = socket.split();
    both(from, to, stream, |to| {
        Box::pin(async move {
            rustix::net::shutdown(to.as_ref().as_fd(), Shutdown::Write)?;
            Ok(sockopt::set_socket_linger(to.as_ref().as_fd(), None)?)
        })
    })
    .await
}

type Ended<'a> = std::pin::Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>;

async fn both<R, W>(
    mut from_program: R,
    mut to_program: W,
    stream: Stream,
    end: impl for<'a> Fn(&'a mut W) -> Ended<'a>,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut stream = CarriedStream::new(stream);
    stream.acknowledge().await?;
    let (mut from_host, mut to_host) = tokio::io::split(stream);
    let out = async {
        pump(&mut from_program, &mut to_host).await?;
        to_host.shutdown().await
    };
    let back = async {
        pump(&mut from_host, &mut to_program).await?;
        end(&mut to_program).await
    };
    tokio::try_join!(out, back).map(drop)
}

/// Copies until the end of `from`.
async fn pump(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut buffer = vec![0; FIRST_PORTION];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        if count == buffer.len() {
            buffer.resize(PORTION, 0);
        } else if count < FIRST_PORTION && buffer.len() > FIRST_PORTION {
            buffer = vec![0; FIRST_PORTION];
        }
    }
}
