//! A socket that holds back small writes until its owner has said all it has to say. The multiplexer
//! flushes after every frame; the end of a command is two frames, and each would wake the other side.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, BufStream, ReadBuf};

/// Enough for the messages of a few calls; bulk data passes by it.
const BUFFER: usize = 2 * 1024;

/// The socket as the multiplexer sees it: its flushes wait for the [`Cork`] to be pulled.
#[derive(Debug)]
pub(crate) struct Corked<T>(Arc<Mutex<BufStream<T>>>);

/// What lets the held-back bytes out.
#[derive(Debug)]
pub(crate) struct Cork<T>(Arc<Mutex<BufStream<T>>>);

/// Both halves. They are used by one task, so the lock between them is never waited for.
pub(crate) fn corked<T: AsyncRead + AsyncWrite>(socket: T) -> (Corked<T>, Cork<T>) {
    let shared = Arc::new(Mutex::new(BufStream::with_capacity(BUFFER, BUFFER, socket)));
    (Corked(Arc::clone(&shared)), Cork(shared))
}

fn lock<T>(shared: &Mutex<BufStream<T>>) -> MutexGuard<'_, BufStream<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: AsyncRead + AsyncWrite + Unpin> Cork<T> {
    /// Writes what was held back. Always pending, or ready when the connection cannot be written to any
    /// more, as the future it is part of wants it.
    pub(crate) fn pull(&self, context: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut *lock(&self.0)).poll_flush(context) {
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
        Pin::new(&mut *lock(&self.0)).poll_read(context, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Corked<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_shutdown(context)
    }
}
