//! Masking of the WebSocket messages of a server. A message may have any number of frames and is searched as
//! a whole; frames keep their lengths. Compressed or masked frames (RFC 6455) cannot be searched: the gate
//! does not negotiate compression, and a connection with such frames is cut.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::masking::mask_stream::{MaskStream, masked};
use crate::masking::secret_finder::SecretFinder;

const FIRST_CONTROL: u8 = 8;
const LONGEST_HEAD: usize = 10;
const LONGEST_CONTROL: u64 = 125;
/// Maximum number of frames that are delayed.
const MOST_PARTS: usize = 16 * 1024;
/// Buffer size.
const PIECE: usize = 16 * 1024;

/// Output in order.
#[derive(Debug)]
enum Part {
    /// A frame header, or a whole frame.
    Whole(Bytes),
    /// This many bytes of the message.
    Message(u64),
}

/// Masks the frames of a server.
#[derive(Debug)]
pub struct MaskFrames {
    finder: Arc<SecretFinder>,
    message: MaskStream,
    /// Received bytes that are not parsed yet.
    input: BytesMut,
    /// Remaining bytes of the frame, and whether it ends its message.
    frame: Option<(u64, bool)>,
    parts: VecDeque<Part>,
    /// Masked bytes that are not passed on yet.
    ready: BytesMut,
    found: Vec<String>,
}

fn unreadable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a WebSocket frame from the server {what}"))
}

impl MaskFrames {
    /// A masker for these values.
    #[must_use]
    pub fn new(finder: Arc<SecretFinder>) -> Self {
        Self {
            message: MaskStream::new(Arc::clone(&finder)),
            finder,
            input: BytesMut::new(),
            frame: None,
            parts: VecDeque::new(),
            ready: BytesMut::new(),
            found: Vec::new(),
        }
    }

    /// Takes received bytes; returns those that can be passed on.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<Bytes> {
        self.input.extend_from_slice(bytes);
        while self.advance()? {}
        let mut out = BytesMut::new();
        while let Some(part) = self.parts.front_mut() {
            match part {
                Part::Whole(bytes) => out.extend_from_slice(bytes),
                Part::Message(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(self.ready.len());
                    out.extend_from_slice(&self.ready.split_to(count));
                    *left -= count as u64;
                    if *left > 0 {
                        break;
                    }
                }
            }
            self.parts.pop_front();
        }
        if self.parts.len() > MOST_PARTS {
            return Err(unreadable("is one of too many that could begin a secret"));
        }
        Ok(out.freeze())
    }

    /// The names of secrets that were found.
    pub fn take_found(&mut self) -> Vec<String> {
        let mut found = std::mem::take(&mut self.found);
        found.extend(self.message.take_found());
        found
    }

    /// Parses a part of the input; returns whether there was one.
    fn advance(&mut self) -> io::Result<bool> {
        if let Some((left, ends)) = self.frame {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.input.len());
            if count == 0 && left > 0 {
                return Ok(false);
            }
            let piece = self.input.split_to(count).freeze();
            self.ready.extend_from_slice(&self.message.push(piece));
            let left = left - count as u64;
            self.frame = (left > 0).then_some((left, ends));
            if left == 0 && ends {
                // The message is complete, so nothing is delayed.
                self.ready.extend_from_slice(&self.message.finish());
            }
            return Ok(true);
        }
        let Some((head, length)) = self.head()? else { return Ok(false) };
        let (is_final, kind) = (self.input[0] & 0x80 != 0, self.input[0] & 0x0f);
        if kind >= FIRST_CONTROL {
            if length > LONGEST_CONTROL || !is_final {
                return Err(unreadable("is a malformed control frame"));
            }
            let whole = head + usize::try_from(length).unwrap_or(usize::MAX);
            if self.input.len() < whole {
                return Ok(false);
            }
            let frame = self.input.split_to(whole);
            let mut out = frame[..head].to_vec();
            match masked(&self.finder, &frame[head..]) {
                Some((bytes, names)) => {
                    out.extend_from_slice(&bytes);
                    self.found.extend(names);
                }
                None => out.extend_from_slice(&frame[head..]),
            }
            self.parts.push_back(Part::Whole(out.into()));
            return Ok(true);
        }
        self.parts.push_back(Part::Whole(self.input.split_to(head).freeze()));
        self.parts.push_back(Part::Message(length));
        self.frame = Some((length, is_final));
        Ok(true)
    }

    /// The lengths of the next frame's header and payload; `None` until the header is complete.
    fn head(&self) -> io::Result<Option<(usize, u64)>> {
        let &[first, second, ..] = &self.input[..] else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err(unreadable("is compressed, which was not negotiated"));
        }
        if second & 0x80 != 0 {
            return Err(unreadable("is masked, which only clients may do"));
        }
        let head = match second {
            126 => 4,
            127 => LONGEST_HEAD,
            _ => 2,
        };
        let Some(mut length) = self.input.get(2..head) else { return Ok(None) };
        let length = match head {
            2 => u64::from(second),
            4 => u64::from(length.get_u16()),
            _ => length.get_u64(),
        };
        Ok(Some((head, length)))
    }
}

/// The server side of a WebSocket: what is read from it is masked.
pub(crate) struct MaskedSocket<S, F> {
    stream: S,
    frames: MaskFrames,
    out: Bytes,
    /// Called with the names of secrets that were found.
    report: F,
}

impl<S, F: Fn(Vec<String>)> MaskedSocket<S, F> {
    pub(crate) fn new(stream: S, finder: Arc<SecretFinder>, report: F) -> Self {
        Self { stream, frames: MaskFrames::new(finder), out: Bytes::new(), report }
    }
}

impl<S: AsyncRead + Unpin, F: Fn(Vec<String>) + Unpin> AsyncRead for MaskedSocket<S, F> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.out.is_empty() {
            let mut piece = vec![0; PIECE];
            let mut read = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.out = this.frames.push(read.filled())?;
            let found = this.frames.take_found();
            if !found.is_empty() {
                (this.report)(found);
            }
        }
        let count = this.out.len().min(buffer.remaining());
        buffer.put_slice(&this.out.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> AsyncWrite for MaskedSocket<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[path = "websocket_tests.rs"]
mod tests;
