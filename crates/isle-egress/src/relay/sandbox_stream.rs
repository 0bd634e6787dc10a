//! A connection of a program in a sandbox: the socket its agent passed, or a stream that carries its bytes where
//! sockets cannot be passed. A process inside may hold the same socket and change it at any time, so
//! nothing here relies on it being non-blocking: every call asks for that itself. Until this side has sent
//! its end, whatever dies resets the connection; one end of a pair is closed instead.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sockopt};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf, ReadHalf, WriteHalf};

use crate::policy::grant::RunKey;
use crate::proxy::ProxyProtocol;

/// Flags of every send.
pub(crate) const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// The daemon's end of a program's connection.
#[derive(Debug)]
pub struct SandboxStream {
    connection: Connection,
    /// Bytes that were read and are read again before all others.
    again: Mutex<Vec<u8>>,
    /// The proxy protocol, if the program waits for a reply of the proxy.
    pub(crate) front: Option<ProxyProtocol>,
    /// The run whose program it is, if known.
    pub(crate) by: Option<RunKey>,
}

/// How the connection reaches this process.
#[derive(Debug)]
enum Connection {
    /// As its socket.
    Passed {
        socket: Arc<OwnedFd>,
        /// `None` while the socket is lent.
        watched: Option<AsyncFd<Arc<OwnedFd>>>,
    },
    /// As a stream of its bytes. Each half is locked for the moment of one call.
    Carried { from: Mutex<ReadHalf<CarriedBytes>>, to: Mutex<WriteHalf<CarriedBytes>> },
}

/// The bytes of a carried connection: reading fails when the program reset it; dropped before it is shut down, it is
/// reset towards the program.
pub type CarriedBytes = Box<dyn Carries>;

/// See [`CarriedBytes`].
pub trait Carries: AsyncRead + AsyncWrite + Send + Unpin + std::fmt::Debug {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + std::fmt::Debug> Carries for T {}

/// Timeout of the final bytes.
const FINAL_TIMEOUT: Duration = Duration::from_secs(5);

impl SandboxStream {
    /// Sets the run whose program it is.
    #[must_use]
    pub fn by(self, by: Option<RunKey>) -> Self {
        Self { by, ..self }
    }

    /// Takes a connected socket. If it is dropped before end of stream, or this process dies, the connection
    /// is reset.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        if sockopt::socket_domain(&socket)? != AddressFamily::UNIX {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        let mut inside = Self::over(Connection::Passed { socket: Arc::new(socket), watched: None });
        inside.watch()?;
        Ok(inside)
    }

    /// Takes a carried connection.
    #[must_use]
    pub fn carried(stream: CarriedBytes) -> Self {
        let (from, to) = tokio::io::split(stream);
        Self::over(Connection::Carried { from: Mutex::new(from), to: Mutex::new(to) })
    }

    fn over(connection: Connection) -> Self {
        Self { connection, again: Mutex::default(), front: None, by: None }
    }

    /// Registers the socket with the runtime.
    pub(crate) fn watch(&mut self) -> io::Result<()> {
        let Connection::Passed { socket, watched } = &mut self.connection else { return Ok(()) };
        let interest = Interest::READABLE | Interest::WRITABLE;
        // SAFETY: the descriptor stays open and the same for as long as any clone of the `Arc` exists.
        let registered = unsafe { AsyncFd::register_with_interest(Arc::clone(socket), interest) };
        *watched = Some(registered.map_err(io::Error::from)?);
        Ok(())
    }

    /// Lends the socket to a caller that polls it differently, until [`Self::watch`]; `None` for a carried
    /// connection, which has none.
    pub(crate) fn lend(&mut self) -> Option<Arc<OwnedFd>> {
        match &mut self.connection {
            Connection::Passed { socket, watched } => {
                *watched = None;
                Some(Arc::clone(socket))
            }
            Connection::Carried { .. } => None,
        }
    }

    /// Resets a connection whose socket is lent; waiting threads wake up.
    pub(crate) fn cut(&self) {
        let Connection::Passed { socket, .. } = &self.connection else { return };
        // Some kernels reject the first call while a thread waits.
        if rustix::net::connect_unspec(&**socket).is_err() {
            rustix::net::shutdown(&**socket, Shutdown::Both).ok();
        }
    }

    /// Puts bytes back to be read before all others.
    pub(crate) fn read_again(&mut self, bytes: Vec<u8>) {
        *self.again() = bytes;
    }

    fn again(&self) -> MutexGuard<'_, Vec<u8>> {
        lock(&self.again)
    }

    /// Whether no bytes were put back: the next ones come from the socket.
    pub(crate) fn has_read_all(&self) -> bool {
        self.again().is_empty()
    }

    /// Sends the final bytes and closes; errors are ignored.
    pub(crate) async fn send_final(&mut self, bytes: &[u8]) {
        let send = async {
            self.write_all(bytes).await?;
            self.flush().await?;
            self.shutdown().await?;
            // Until the other side has read it: what it still sends is discarded.
            let mut rest = vec![0; 4096];
            while self.read(&mut rest).await? > 0 {}
            io::Result::Ok(())
        };
        tokio::time::timeout(FINAL_TIMEOUT, send).await.ok();
    }

    fn poll_receive(&self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut again = self.again();
        if !again.is_empty() {
            let count = again.len().min(buffer.remaining());
            buffer.put_slice(&again[..count]);
            again.drain(..count);
            return Poll::Ready(Ok(()));
        }
        drop(again);
        let (socket, watched) = match &self.connection {
            Connection::Passed { socket, watched } => (socket, registered(watched)?),
            Connection::Carried { from, .. } => return Pin::new(&mut *lock(from)).poll_read(context, buffer),
        };
        loop {
            let mut guard = ready!(watched.poll_read_ready(context))?;
            let room = buffer.remaining();
            match rustix::net::recv(&**socket, buffer.initialize_unfilled(), RecvFlags::DONTWAIT) {
                Ok((count, _)) => {
                    // A short read drained the socket; the next bytes are reported again.
                    if 0 < count && count < room {
                        guard.clear_ready();
                    }
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn poll_send(&self, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let (socket, watched) = match &self.connection {
            Connection::Passed { socket, watched } => (socket, registered(watched)?),
            Connection::Carried { to, .. } => {
                // A frame has one part.
                let first = parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| part);
                return Pin::new(&mut *lock(to)).poll_write(context, first);
            }
        };
        loop {
            let mut guard = ready!(watched.poll_write_ready(context))?;
            match rustix::net::sendmsg(&**socket, parts, &mut SendAncillaryBuffer::default(), SEND) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                sent => return Poll::Ready(sent.map_err(Into::into)),
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn registered(watched: &Option<AsyncFd<Arc<OwnedFd>>>) -> io::Result<&AsyncFd<Arc<OwnedFd>>> {
    watched.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Ends the sending side of a program's connection. Bytes sent before are no longer discarded by a reset.
pub(crate) fn end(socket: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::net::shutdown(socket, Shutdown::Write) {
        // Already disconnected.
        Ok(()) | Err(Errno::NOTCONN) => Ok(sockopt::set_socket_linger(socket, None)?),
        Err(error) => Err(error.into()),
    }
}

impl AsyncRead for &SandboxStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_receive(context, buffer)
    }
}

impl AsyncWrite for &SandboxStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.connection {
            Connection::Passed { .. } => Poll::Ready(Ok(())),
            Connection::Carried { to, .. } => Pin::new(&mut *lock(to)).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.connection {
            Connection::Passed { socket, .. } => Poll::Ready(end(socket.as_fd())),
            Connection::Carried { to, .. } => Pin::new(&mut *lock(to)).poll_shutdown(context),
        }
    }
}

impl AsyncRead for SandboxStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_read(context, buffer)
    }
}

impl AsyncWrite for SandboxStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_shutdown(context)
    }
}
