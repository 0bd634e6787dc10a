//! A socket that buffers small writes until its owner has nothing more to write, as `TCP_CORK` does. The
//! multiplexer flushes after every frame; the result of a command is two frames, and each would wake the
//! peer. Bulk data is written together with what is buffered, so that a frame and its header are one write.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};

/// Enough for the messages of a few calls; bulk data is not buffered.
const BUFFER: usize = 2 * 1024;

#[derive(Debug)]
struct Shared<T> {
    socket: BufReader<T>,
    buffered: Vec<u8>,
}

/// The socket as the multiplexer sees it: its flushes wait for [`Cork::pull`].
#[derive(Debug)]
pub(crate) struct Corked<T>(Arc<Mutex<Shared<T>>>);

/// Writes the buffered bytes.
#[derive(Debug)]
pub(crate) struct Cork<T>(Arc<Mutex<Shared<T>>>);

/// Both halves. They are used by one task, so the lock between them is never contended.
pub(crate) fn corked<T: AsyncRead + AsyncWrite>(socket: T) -> (Corked<T>, Cork<T>) {
    let socket = BufReader::with_capacity(BUFFER, socket);
    let shared = Arc::new(Mutex::new(Shared { socket, buffered: Vec::with_capacity(BUFFER) }));
    (Corked(Arc::clone(&shared)), Cork(shared))
}

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: AsyncRead + AsyncWrite + Unpin> Shared<T> {
    /// Writes what is buffered, and as much of `more` as fits into the same write; returns how much of that.
    fn poll_write_buffered(&mut self, context: &mut Context<'_>, more: &[u8]) -> Poll<io::Result<usize>> {
        while !self.buffered.is_empty() {
            let parts = [IoSlice::new(&self.buffered), IoSlice::new(more)];
            let count = ready!(Pin::new(&mut self.socket).poll_write_vectored(context, &parts))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let own = count.min(self.buffered.len());
            self.buffered.drain(..own);
            if count > own {
                return Poll::Ready(Ok(count - own));
            }
        }
        Poll::Ready(Ok(0))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Cork<T> {
    /// Writes what is buffered. Always pending, or ready when the connection cannot be written to any more,
    /// as the future it is part of needs it.
    pub(crate) fn pull(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut shared = lock(&self.0);
        let flushed = match shared.poll_write_buffered(context, &[]) {
            Poll::Ready(Ok(_)) => Pin::new(&mut shared.socket).poll_flush(context),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        match flushed {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Corked<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).socket).poll_read(context, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Corked<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = lock(&self.0);
        if shared.buffered.len() + bytes.len() <= BUFFER {
            shared.buffered.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        match ready!(shared.poll_write_buffered(context, bytes))? {
            // The buffer is written, and nothing of the new bytes.
            0 => Pin::new(&mut shared.socket).poll_write(context, bytes),
            count => Poll::Ready(Ok(count)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = lock(&self.0);
        ready!(shared.poll_write_buffered(context, &[]))?;
        Pin::new(&mut shared.socket).poll_shutdown(context)
    }
}
