//! Where the single request of an HTTP connection ends. Servers are asked to close after the response, but
//! not all do; so the gate counts the body and passes on nothing after the request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::http::override_headers::{Override, override_of};

/// What follows the head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBody {
    /// A fixed number of bytes.
    Length(u64),
    /// Chunked transfer encoding.
    Chunked,
    /// Another protocol, if the server agrees.
    Upgrade,
}

/// What remains of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemainingBody {
    /// This many bytes.
    Left(u64),
    /// Chunks.
    ChunkState(ChunkState),
    /// Unlimited.
    Anything,
}

/// The position of the next byte in chunked encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkState {
    /// In the digits of a chunk size: their number and value.
    Size(u32, u64),
    /// In a chunk extension.
    Extension(u64),
    /// Before the line feed that ends the line.
    SizeEnd(u64),
    /// In the data.
    Data(u64),
    /// Before the end of the line after them.
    DataEnd,
    /// Before its line feed.
    DataFeed,
    /// At the beginning of a line after the last chunk.
    Trailer,
    /// In the name of such a field, as far as it was read.
    TrailerName(TrailerName),
    /// Within the rest of such a line.
    TrailerText,
    /// Before its line feed.
    TrailerFeed,
    /// Before the very last line feed.
    LastFeed,
    /// Complete.
    Over,
}

/// The name of a trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrailerName {
    text: [u8; 64],
    length: u8,
}

impl TrailerName {
    const EMPTY: Self = Self { text: [0; 64], length: 0 };

    /// With one more byte; `None` when the name is too long to have a meaning.
    fn with(mut self, byte: u8) -> Option<Self> {
        *self.text.get_mut(usize::from(self.length))? = byte;
        self.length += 1;
        Some(self)
    }

    /// Whether the trailer overrides the request line.
    fn overrides_request(&self) -> bool {
        let name = self.text.get(..usize::from(self.length)).and_then(|name| std::str::from_utf8(name).ok());
        name.is_some_and(|name| override_of(name.trim()) != Override::None)
    }
}

/// Maximum number of digits of a chunk size, so that it fits in 64 bits.
const MOST_DIGITS: u32 = 15;

/// What may follow the first bytes of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestRest {
    /// The rest of a body.
    Counted(RemainingBody),
    /// Anything if the server agrees to another protocol, nothing otherwise.
    IfAgreed,
}

impl Default for RequestRest {
    fn default() -> Self {
        Self::Counted(RemainingBody::Anything)
    }
}

impl From<RequestBody> for RequestRest {
    fn from(body: RequestBody) -> Self {
        match body {
            RequestBody::Length(length) => Self::Counted(RemainingBody::Left(length)),
            RequestBody::Chunked => Self::Counted(RemainingBody::ChunkState(ChunkState::Size(0, 0))),
            RequestBody::Upgrade => Self::IfAgreed,
        }
    }
}

impl RequestRest {
    /// How many of these bytes, which came with the head, may follow it.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Counted(count) => count.take(bytes),
            // Nothing is sent to the server before it has agreed.
            Self::IfAgreed => Ok(0),
        }
    }
}

impl RemainingBody {
    /// Whether the body is complete.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Left(0) | Self::ChunkState(ChunkState::Over))
    }

    /// How many of these bytes still belong to the request.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Anything => Ok(bytes.len()),
            Self::Left(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= count as u64;
                Ok(count)
            }
            Self::ChunkState(chunk) => {
                let mut at = 0;
                while at < bytes.len() && *chunk != ChunkState::Over {
                    at += chunk.step(&bytes[at..])?;
                }
                Ok(at)
            }
        }
    }
}

impl ChunkState {
    /// Advances by at least one byte; returns by how many.
    fn step(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let byte = bytes.first().copied().unwrap_or_default();
        *self = match (*self, byte) {
            (Self::Data(left), _) => {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let left = left - count as u64;
                *self = if left == 0 { Self::DataEnd } else { Self::Data(left) };
                return Ok(count);
            }
            (Self::Size(digits, size), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < MOST_DIGITS => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                Self::Size(digits + 1, size << 4 | u64::from(digit))
            }
            (Self::Size(1.., size), b'\r') | (Self::Extension(size), b'\r') => Self::SizeEnd(size),
            (Self::Size(1.., size), b';') => Self::Extension(size),
            (Self::Extension(size), b'\t' | b' '..=b'~') => Self::Extension(size),
            (Self::SizeEnd(0), b'\n') | (Self::TrailerFeed, b'\n') => Self::Trailer,
            (Self::SizeEnd(size), b'\n') => Self::Data(size),
            (Self::DataEnd, b'\r') => Self::DataFeed,
            (Self::DataFeed, b'\n') => Self::Size(0, 0),
            (Self::Trailer, b'\r') => Self::LastFeed,
            (Self::TrailerText | Self::TrailerName(_), b'\r') => Self::TrailerFeed,
            (Self::TrailerName(name), b':') if name.overrides_request() => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a trailer overrides the request line",
                ));
            }
            (Self::TrailerName(_), b':') => Self::TrailerText,
            (Self::Trailer, b'\t' | b' '..=b'~' | 0x80..) => {
                TrailerName::EMPTY.with(byte).map_or(Self::TrailerText, Self::TrailerName)
            }
            (Self::TrailerName(name), b'\t' | b' '..=b'~' | 0x80..) => {
                name.with(byte).map_or(Self::TrailerText, Self::TrailerName)
            }
            (Self::TrailerText, b'\t' | b' '..=b'~' | 0x80..) => Self::TrailerText,
            (Self::LastFeed, b'\n') => Self::Over,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the chunked encoding of the request is malformed",
                ));
            }
        };
        Ok(1)
    }
}

/// Reads what a program sends, up to the end of its request. Later bytes are discarded; end of stream is
/// still reported.
#[derive(Debug)]
pub(crate) struct SingleRequestReader<'c, R> {
    pub(crate) from: R,
    pub(crate) count: &'c mut RemainingBody,
}

impl<R: AsyncRead + Unpin> AsyncRead for SingleRequestReader<'_, R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.from).poll_read(context, buffer))?;
            let new = &buffer.filled()[before..];
            if new.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let count = this.count.take(new);
            buffer.set_filled(before + count.as_ref().copied().unwrap_or(0));
            let count = count?;
            if count > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
#[path = "body_length_tests.rs"]
mod tests;
