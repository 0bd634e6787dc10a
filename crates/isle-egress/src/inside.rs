//! A connection of a program in a sandbox, as the socket its agent handed over. Somebody inside may hold
//! the same socket and change it at any time, so that nothing here relies on it never blocking: every call
//! says so itself. Until this side has said its end, the death of anything means a reset; only where it is
//! one end of a pair, whose other end then finds it closed.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sockopt};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};

use crate::front::Front;

/// How everything is sent.
pub(crate) const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// See the module.
#[derive(Debug)]
pub struct Inside {
    socket: Arc<OwnedFd>,
    /// Without it, while somebody else has the socket.
    watched: Option<AsyncFd<Arc<OwnedFd>>>,
    /// Bytes that were read and are to be read again, before all others.
    again: Mutex<Vec<u8>>,
    /// How the program asked for the way that it waits for, where it spoke to its proxy.
    pub(crate) front: Option<Front>,
}

/// How long somebody may take to hear a last word.
const LAST_WORD: Duration = Duration::from_secs(5);

impl Inside {
    /// Takes a connected socket over. Dropped before its end it is reset, also when this process dies.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        if sockopt::socket_domain(&socket)? != AddressFamily::UNIX {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        let (socket, again) = (Arc::new(socket), Mutex::default());
        let mut inside = Self { socket, watched: None, again, front: None };
        inside.watch()?;
        Ok(inside)
    }

    /// Watches for what can be read and written.
    pub(crate) fn watch(&mut self) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        // SAFETY: the descriptor stays the same and open for as long as anybody has a share of it.
        let watched = unsafe { AsyncFd::register_with_interest(Arc::clone(&self.socket), interest) };
        self.watched = Some(watched.map_err(io::Error::from)?);
        Ok(())
    }

    /// Lends the socket to somebody who waits for it in another way, until [`Self::watch`].
    pub(crate) fn lend(&mut self) -> Arc<OwnedFd> {
        self.watched = None;
        Arc::clone(&self.socket)
    }

    /// Resets the connection now, whoever still holds the socket; who waits for it is woken.
    pub(crate) fn cut(&self) {
        // Some kernels refuse the first while somebody waits.
        if rustix::net::connect_unspec(&*self.socket).is_err() {
            rustix::net::shutdown(&*self.socket, Shutdown::Both).ok();
        }
    }

    /// Has bytes read again, before whatever comes.
    pub(crate) fn read_again(&mut self, bytes: Vec<u8>) {
        *self.again() = bytes;
    }

    fn again(&self) -> MutexGuard<'_, Vec<u8>> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all that was read is used: what comes next is in the socket.
    pub(crate) fn has_read_all(&self) -> bool {
        self.again().is_empty()
    }

    /// Says a last word; whether it is heard changes nothing.
    pub(crate) async fn say_last(&mut self, words: &[u8]) {
        let say = async {
            self.write_all(words).await?;
            self.flush().await?;
            self.shutdown().await?;
            // Until the other side has read it: what it still sends is thrown away.
            let mut rest = vec![0; 4096];
            while self.read(&mut rest).await? > 0 {}
            io::Result::Ok(())
        };
        tokio::time::timeout(LAST_WORD, say).await.ok();
    }

    fn watched(&self) -> io::Result<&AsyncFd<Arc<OwnedFd>>> {
        self.watched.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
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
        let watched = self.watched()?;
        loop {
            let mut guard = ready!(watched.poll_read_ready(context))?;
            let room = buffer.remaining();
            match rustix::net::recv(&*self.socket, buffer.initialize_unfilled(), RecvFlags::DONTWAIT) {
                Ok((count, _)) => {
                    // Less than there was room for is all there was; more is told anew.
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
        let watched = self.watched()?;
        loop {
            let mut guard = ready!(watched.poll_write_ready(context))?;
            match rustix::net::sendmsg(&*self.socket, parts, &mut SendAncillaryBuffer::default(), SEND) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                sent => return Poll::Ready(sent.map_err(Into::into)),
            }
        }
    }
}

/// Says the end of one side of a program's connection. What was said is said then: no reset takes it back.
pub(crate) fn end(socket: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::net::shutdown(socket, Shutdown::Write) {
        // Who is gone already needs no word.
        Ok(()) | Err(Errno::NOTCONN) => Ok(sockopt::set_socket_linger(socket, None)?),
        Err(error) => Err(error.into()),
    }
}

impl AsyncRead for &Inside {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_receive(context, buffer)
    }
}

impl AsyncWrite for &Inside {
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

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(end(self.socket.as_fd()))
    }
}

impl AsyncRead for Inside {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_read(context, buffer)
    }
}

impl AsyncWrite for Inside {
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
