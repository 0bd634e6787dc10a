//! An HTTP/1 connection that hyper parses, with a [`RequestGuard`] reading along and a timeout for request
//! heads.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::http::request_guard::RequestGuard;

/// Timeout of a head, from its first byte to its last.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The guard, shared with the code that answers the requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedGuard(Arc<Mutex<RequestGuard>>);

impl SharedGuard {
    pub(crate) fn lock(&self) -> MutexGuard<'_, RequestGuard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream whose requests are checked.
#[derive(Debug)]
pub(crate) struct GuardedStream<S> {
    pub(crate) stream: S,
    guard: SharedGuard,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> GuardedStream<S> {
    pub(crate) fn new(stream: S, guard: SharedGuard) -> Self {
        Self { stream, guard, deadline: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let in_head = {
            let mut guard = self.guard.lock();
            guard.read(&buffer.filled()[before..]);
            guard.is_in_head()
        };
        if !in_head {
            self.deadline = None;
            return polled;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(HEAD_TIMEOUT)));
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => polled,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
