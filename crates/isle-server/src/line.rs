//! The line a caller is on, around its socket. It sees to it that whoever is refused can read why:
//! a request that hyper could not read is answered in our own words, and what a refused caller is
//! still sending is taken off the line, within bounds, before it is closed. A socket that is closed
//! with unread bytes on it is reset, and the answer may be lost with it.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::framing::Framing;
use http::StatusCode;
use isle_engine::{Code, Error};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// How much of what a refused caller still sends is read, and for how long.
const MAX_DISCARD: usize = 64 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(5);
/// The same for those who may not even ask.
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);

/// What is known about the requests on a line; shared with the bodies that come over it.
#[derive(Debug, Default)]
pub(crate) struct LineState {
    /// Something came in.
    heard: AtomicBool,
    /// A request was read and handed on; from then on every byte that goes out is an answer of ours.
    served: AtomicBool,
    /// What hyper wanted to answer to something it could not read.
    refused: AtomicU16,
    /// An answer was given before the request was read to its end.
    unread: AtomicBool,
    /// A body came too slowly.
    too_slow: AtomicBool,
    /// A request said in two ways where it ends.
    twofold: AtomicBool,
}

impl LineState {
    pub(crate) fn begin(&self) {
        self.served.store(true, Ordering::Release);
    }

    pub(crate) fn leave_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    pub(crate) fn give_up_waiting(&self) {
        self.too_slow.store(true, Ordering::Release);
    }

    pub(crate) fn is_too_slow(&self) -> bool {
        self.too_slow.load(Ordering::Acquire)
    }

    /// Whether the request says in two ways where it ends.
    pub(crate) fn is_twofold(&self) -> bool {
        self.twofold.load(Ordering::Acquire)
    }

    fn is_served(&self) -> bool {
        self.served.load(Ordering::Acquire)
    }

    /// Whether somebody has to hear a last word, or to be heard out.
    fn is_open(&self) -> bool {
        self.refused.load(Ordering::Acquire) != 0 || self.unread.load(Ordering::Acquire)
    }
}

/// A socket with its state. Clones are the same line.
#[derive(Debug)]
pub(crate) struct Line<S> {
    stream: Arc<Mutex<S>>,
    framing: Arc<Mutex<Framing>>,
    pub(crate) state: Arc<LineState>,
}

impl<S> Clone for Line<S> {
    fn clone(&self) -> Self {
        Self { stream: self.stream.clone(), framing: self.framing.clone(), state: self.state.clone() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream: Arc::new(Mutex::new(stream)), framing: Arc::default(), state: Arc::default() }
    }

    fn stream(&self) -> MutexGuard<'_, S> {
        // A stream is only ever polled under the lock, and stays whole whatever happened there.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After hyper is done with the line: the last word, if one is due, and hearing the caller out.
    pub(crate) async fn farewell(mut self, ended: Result<(), &hyper::Error>) {
        let last_word = self.last_word(ended);
        if last_word.is_none() && !self.state.is_open() {
            return;
        }
        self.say_goodbye(last_word, DISCARD_TIME).await;
    }

    /// Answers whoever is at the other end without having heard them.
    pub(crate) async fn turn_away(mut self, status: StatusCode, error: Error) {
        self.say_goodbye(Some((status, error)), TURN_AWAY_TIME).await;
    }

    async fn say_goodbye(&mut self, last_word: Option<(StatusCode, Error)>, within: Duration) {
        let goodbye = async {
            if let Some((status, error)) = last_word {
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
        // The caller may be gone, or go on for ever; neither is worth a word.
        let _ = tokio::time::timeout(within, goodbye).await;
    }

    /// What a caller is told whose request was never read.
    fn last_word(&self, ended: Result<(), &hyper::Error>) -> Option<(StatusCode, Error)> {
        let wanted = StatusCode::from_u16(self.state.refused.load(Ordering::Acquire)).ok();
        let status = match (wanted, ended) {
            (Some(status), _) => status,
            // Later on the line an answer nobody asked for would be taken for that of the next request.
            _ if self.state.is_served() || !self.state.heard.load(Ordering::Acquire) => return None,
            (None, Err(error)) if error.is_timeout() => StatusCode::REQUEST_TIMEOUT,
            (None, Err(error)) if error.is_parse() => StatusCode::BAD_REQUEST,
            (None, _) => return None,
        };
        let refuse = |message: &str, next: &str| Error::new(Code::InvalidArgument, message).next(next);
        let error = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                Error::new(Code::TooLarge, "the head of the request is too large or has too many headers")
                    .next("send fewer and shorter headers: at most 100, and 128 KiB together")
            }
            StatusCode::URI_TOO_LONG => Error::new(Code::TooLarge, "the address of the request is too long")
                .next("send long arguments in a JSON body"),
            StatusCode::REQUEST_TIMEOUT => {
                refuse("the head of the request did not come in time", "send the whole head at once")
            }
            _ => refuse(
                "this is not a request of HTTP/1.1",
                "speak HTTP/1.1, without prior knowledge of HTTP/2",
            ),
        };
        Some((status, error))
    }
}

/// A whole answer that ends the connection.
fn answer(status: StatusCode, error: &Error) -> String {
    let body = json!({ "error": error.to_json() }).to_string();
    format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len(),
    )
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut *self.stream()).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.state.heard.store(true, Ordering::Release);
            let mut framing = self.framing.lock().unwrap_or_else(PoisonError::into_inner);
            if framing.read(&buffer.filled()[before..]) {
                self.state.twofold.store(true, Ordering::Release);
            }
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.state.is_served() {
            return Pin::new(&mut *self.stream()).poll_write(context, bytes);
        }
        // Nothing was handed on yet, so this is hyper's own, wordless refusal; `farewell` has better ones.
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
        if self.state.is_open() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut *self.stream()).poll_shutdown(context)
    }
}

fn status_of(head: &[u8]) -> StatusCode {
    head.get(9..12).and_then(|digits| StatusCode::from_bytes(digits).ok()).unwrap_or(StatusCode::BAD_REQUEST)
}
