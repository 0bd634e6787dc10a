//! Where the one request of an HTTP connection ends. Servers are asked to close after their answer, and
//! not all do; so the gate itself counts, and passes on nothing that comes after the request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// What follows the head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// So many bytes.
    Length(u64),
    /// Chunks, each with its length before it.
    Chunked,
    /// What the server agrees to: another protocol.
    Upgrade,
}

/// Counts the bytes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// So many are still to come.
    Left(u64),
    /// In chunks.
    Chunk(Chunk),
    /// Nobody counts.
    Anything,
}

/// Where in the chunks the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In the digits of a length: how many there were, and what they say.
    Size(u32, u64),
    /// Behind them, in what nobody needs.
    Extension(u64),
    /// Before the line feed that ends the line.
    SizeEnd(u64),
    /// In the bytes themselves.
    Data(u64),
    /// Before the end of the line after them.
    DataEnd,
    /// Before its line feed.
    DataFeed,
    /// At the beginning of a line after the last chunk.
    Trailer,
    /// Within such a line.
    TrailerText,
    /// Before its line feed.
    TrailerFeed,
    /// Before the very last line feed.
    LastFeed,
    /// All of it has been seen.
    Over,
}

/// Digits of a length, at most: sixteen are any number there is.
const MOST_DIGITS: u32 = 15;

/// What may follow the first words of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follows {
    /// As much as is counted.
    Counted(Count),
    /// Anything, if the server agrees to another protocol, and nothing otherwise.
    IfAgreed,
}

impl Default for Follows {
    fn default() -> Self {
        Self::Counted(Count::Anything)
    }
}

impl From<Body> for Follows {
    fn from(body: Body) -> Self {
        match body {
            Body::Length(length) => Self::Counted(Count::Left(length)),
            Body::Chunked => Self::Counted(Count::Chunk(Chunk::Size(0, 0))),
            Body::Upgrade => Self::IfAgreed,
        }
    }
}

impl Follows {
    /// How many of these bytes, which came with the head, may follow it.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Counted(count) => count.take(bytes),
            // Nothing is said to a server before it has agreed to hear it.
            Self::IfAgreed => Ok(0),
        }
    }
}

impl Count {
    /// How many of these bytes still belong to the request.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Anything => Ok(bytes.len()),
            Self::Left(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= count as u64;
                Ok(count)
            }
            Self::Chunk(chunk) => {
                let mut at = 0;
                while at < bytes.len() && *chunk != Chunk::Over {
                    at += chunk.step(&bytes[at..])?;
                }
                Ok(at)
            }
        }
    }
}

impl Chunk {
    /// Goes on by at least one byte; says by how many.
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
            (Self::TrailerText, b'\r') => Self::TrailerFeed,
            (Self::Trailer | Self::TrailerText, b'\t' | b' '..=b'~' | 0x80..) => Self::TrailerText,
            (Self::LastFeed, b'\n') => Self::Over,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the chunks of the request are broken",
                ));
            }
        };
        Ok(1)
    }
}

/// What a program sends, up to the end of its request. What comes later is thrown away; that the program
/// has ended is still heard.
#[derive(Debug)]
pub(crate) struct OneRequest<'c, R> {
    pub(crate) from: R,
    pub(crate) count: &'c mut Count,
}

impl<R: AsyncRead + Unpin> AsyncRead for OneRequest<'_, R> {
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
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn counted(body: Body) -> Count {
        match Follows::from(body) {
            Follows::Counted(count) => count,
            Follows::IfAgreed => Count::Left(0),
        }
    }

    async fn passed(body: Body, sent: &[u8]) -> io::Result<Vec<u8>> {
        let mut heard = Vec::new();
        OneRequest { from: sent, count: &mut counted(body) }.read_to_end(&mut heard).await.map(|_| heard)
    }

    #[tokio::test]
    async fn nothing_passes_after_the_request() {
        let later = b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n";
        for (body, request) in [
            (Body::Length(0), &b""[..]),
            (Body::Length(5), b"hello"),
            (Body::Chunked, b"0\r\n\r\n"),
            (Body::Chunked, b"5\r\nhello\r\n0\r\n\r\n"),
            (Body::Chunked, b"A;name=value\r\n0123456789\r\n00\r\nSum: 1\r\nOther: 2\r\n\r\n"),
        ] {
            let sent = [request, later].concat();
            assert_eq!(passed(body, &sent).await.unwrap(), request, "{body:?}");
            for size in [1, 2, 3, 7] {
                let mut count = counted(body);
                let pieces = sent.chunks(size).map(|piece| count.take(piece).unwrap());
                assert_eq!(pieces.sum::<usize>(), request.len(), "{body:?} in pieces of {size}");
            }
        }
    }

    #[tokio::test]
    async fn chunks_that_can_be_read_in_two_ways_are_an_error() {
        for sent in [
            &b"5\nhello\r\n0\r\n\r\n"[..],
            b"\r\nhello",
            b"0x5\r\nhello\r\n0\r\n\r\n",
            b"+5\r\nhello\r\n0\r\n\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
            b"5 \r\nhello\r\n0\r\n\r\n",
            b"5\r\nhelloX\r\n0\r\n\r\n",
            b"ffffffffffffffff\r\n",
            b"5;a\nb\r\nhello\r\n0\r\n\r\n",
            b"0\r\nSum: 1\n\r\n",
        ] {
            let error = passed(Body::Chunked, sent).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{sent:?}");
        }
    }
}
