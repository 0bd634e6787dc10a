//! A client connection around its socket. Ensures that a rejected client receives the reason: a request that
//! hyper cannot parse gets a JSON error, and what a rejected client is still sending is read and discarded,
//! within limits, before the socket is closed. Closing a socket with unread bytes resets it, and the response
//! may be lost.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, StatusCode};
use isle_core::{Code, Error};
use isle_egress::{HeadDefect, RequestGuard};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// How much data of a rejected client is discarded, and for how long.
const MAX_DISCARD: usize = 64 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(5);
/// The same for clients that may not connect at all.
const REJECT_TIME: Duration = Duration::from_secs(1);

/// State of the requests of a connection; shared with their bodies.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    /// Bytes were received.
    received: AtomicBool,
    /// A request was parsed and passed to the service; from then on every byte sent is part of its response.
    served: AtomicBool,
    /// The status hyper chose for a request it cannot parse.
    refused: AtomicU16,
    /// A response was sent before the request was read completely.
    unread: AtomicBool,
    /// A body was sent too slowly.
    too_slow: AtomicBool,
    /// Inspects the raw bytes, since hyper accepts ambiguous requests.
    guard: Mutex<RequestGuard>,
}

impl ConnectionState {
    pub(crate) fn begin(&self) {
        self.served.store(true, Ordering::Release);
    }

    pub(crate) fn mark_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    pub(crate) fn mark_too_slow(&self) {
        self.too_slow.store(true, Ordering::Release);
    }

    pub(crate) fn is_too_slow(&self) -> bool {
        self.too_slow.load(Ordering::Acquire)
    }

    /// Whether the next request is ambiguous: a proxy in front of the server could interpret it differently.
    pub(crate) fn next_flaw<B>(&self, request: &Request<B>) -> Option<HeadDefect> {
        let path = request.uri().path_and_query().map(|path| path.as_str());
        match self.guard().next_verdict() {
            Some(Ok(seen)) if seen.is(request.method().as_str(), path) => None,
            Some(Ok(_)) | None => Some(HeadDefect::RequestLine),
            Some(Err(flaw)) => Some(flaw),
        }
    }

    /// The connection was upgraded to another protocol.
    pub(crate) fn switch(&self) {
        self.guard().switch();
    }

    fn guard(&self) -> MutexGuard<'_, RequestGuard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_served(&self) -> bool {
        self.served.load(Ordering::Acquire)
    }

    /// Whether an error must be sent, or remaining data discarded.
    fn needs_drain(&self) -> bool {
        self.refused.load(Ordering::Acquire) != 0 || self.unread.load(Ordering::Acquire)
    }
}

/// A socket with its state. Clones share the socket.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    stream: Arc<Mutex<S>>,
    pub(crate) state: Arc<ConnectionState>,
}

impl<S> Clone for Connection<S> {
    fn clone(&self) -> Self {
        Self { stream: self.stream.clone(), state: self.state.clone() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream: Arc::new(Mutex::new(stream)), state: Arc::default() }
    }

    fn stream(&self) -> MutexGuard<'_, S> {
        // The stream is only polled under the lock and stays consistent after a panic.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After hyper has finished: sends the pending error, if any, and discards remaining data.
    pub(crate) async fn finish(mut self, ended: Result<(), &hyper::Error>) {
        let final_response = self.final_response(ended);
        if final_response.is_none() && !self.state.needs_drain() {
            return;
        }
        self.send_and_drain(final_response, DISCARD_TIME).await;
    }

    /// Sends an error without reading a request.
    pub(crate) async fn reject(mut self, status: StatusCode, error: Error) {
        self.send_and_drain(Some((status, error)), REJECT_TIME).await;
    }

    async fn send_and_drain(&mut self, final_response: Option<(StatusCode, Error)>, within: Duration) {
        let drain = async {
            if let Some((status, error)) = final_response {
                self.state.begin();
                self.write_all(answer(status, &error).as_bytes()).await?;
            }
            std::future::poll_fn(|context| Pin::new(&mut *self.stream()).poll_shutdown(context)).await?;
            let mut discarded = vec![0; 16 * 1024];
            let mut left = MAX_DISCARD;
            while left > 0 {
                match self.read(&mut discarded).await? {
                    0 => break,
                    count => left = left.saturating_sub(count),
                }
            }
            Ok::<_, io::Error>(())
        };
        // The client may have disconnected, or send forever.
        let _ = tokio::time::timeout(within, drain).await;
    }

    /// The error for a request that could not be parsed.
    fn final_response(&self, ended: Result<(), &hyper::Error>) -> Option<(StatusCode, Error)> {
        let wanted = StatusCode::from_u16(self.state.refused.load(Ordering::Acquire)).ok();
        let status = match (wanted, ended) {
            (Some(status), _) => status,
            // After a first request, an extra response would be taken for that of the next one.
            _ if self.state.is_served() || !self.state.received.load(Ordering::Acquire) => return None,
            (None, Err(error)) if error.is_timeout() => StatusCode::REQUEST_TIMEOUT,
            (None, Err(error)) if error.is_parse() => StatusCode::BAD_REQUEST,
            (None, _) => return None,
        };
        let invalid = |message: &str, next: &str| Error::new(Code::InvalidArgument, message).next(next);
        let error = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                Error::new(Code::TooLarge, "request head too large, or too many headers")
                    .next("send at most 100 headers and 128 KiB in total")
            }
            StatusCode::URI_TOO_LONG => {
                Error::new(Code::TooLarge, "request URI too long").next("send long arguments in a JSON body")
            }
            StatusCode::REQUEST_TIMEOUT => {
                invalid("timed out waiting for the request head", "send the whole head at once")
            }
            _ => invalid("not a valid HTTP/1.1 request", "use HTTP/1.1, without HTTP/2 prior knowledge"),
        };
        Some((status, error))
    }
}

/// A complete response that closes the connection.
fn answer(status: StatusCode, error: &Error) -> String {
    let body = json!({ "error": error.to_json() }).to_string();
    format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len(),
    )
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut *self.stream()).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.state.received.store(true, Ordering::Release);
            self.state.guard().read(&buffer.filled()[before..]);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.state.is_served() {
            return Pin::new(&mut *self.stream()).poll_write(context, bytes);
        }
        // No request was passed on yet, so this is hyper's own error without a body; `finish` sends a better one.
        self.state.refused.store(status_of(bytes).as_u16(), Ordering::Release);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.state.is_served() {
            return Pin::new(&mut *self.stream()).poll_write_vectored(context, slices);
        }
        let bytes = slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>();
        self.poll_write(context, &bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.needs_drain() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut *self.stream()).poll_shutdown(context)
    }
}

fn status_of(head: &[u8]) -> StatusCode {
    head.get(9..12).and_then(|digits| StatusCode::from_bytes(digits).ok()).unwrap_or(StatusCode::BAD_REQUEST)
}
