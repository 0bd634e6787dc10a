//! A TCP connection carried over one stream of the multiplexer, where descriptors cannot be passed. Bytes travel in
//! data frames. An end frame is a FIN; a stream that ends without one is a RST. So both survive, in both
//! directions, and a lost link resets every connection it carried.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::frame::{DATA, END, HEADER, MAX_FRAME};

/// Longest payload of one frame: one frame of the multiplexer.
const LONGEST: usize = 64 * 1024;
/// Writes up to this size are copied behind their header, so that they cost one frame of the multiplexer.
const SHORT: usize = 2 * 1024;

/// The connection, as a stream of bytes. Reading fails with `ConnectionReset` when the peer did not send a FIN.
/// Dropped before [`AsyncWrite::poll_shutdown`] it resets the connection.
#[derive(Debug)]
pub struct CarriedStream<S> {
    stream: S,
    reading: Reading,
    writing: Writing,
}

#[derive(Debug)]
enum Reading {
    Header { bytes: [u8; HEADER], filled: usize },
    Body { left: usize },
    Ended,
}

#[derive(Debug)]
enum Writing {
    /// Between frames.
    Idle,
    /// A header that is not sent yet, and the length it announces.
    Header { bytes: [u8; HEADER], sent: usize, length: usize },
    /// Bytes that the last header announced and that were not written yet.
    Body { left: usize },
    /// The end frame, and how much of it is sent.
    End { sent: usize },
    /// The stream itself is being closed, or is.
    Closing,
}

const START: Reading = Reading::Header { bytes: [0; HEADER], filled: 0 };

fn header(kind: u8, length: usize) -> [u8; HEADER] {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [kind, a, b, c, d]
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl<S> CarriedStream<S> {
    /// Carries one connection over `stream`, which carries nothing else from now on.
    pub fn new(stream: S) -> Self {
        Self { stream, reading: START, writing: Writing::Idle }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CarriedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match &mut this.reading {
                Reading::Ended => return Poll::Ready(Ok(())),
                Reading::Header { bytes, filled } => {
                    let mut rest = ReadBuf::new(&mut bytes[*filled..]);
                    ready!(Pin::new(&mut this.stream).poll_read(context, &mut rest))?;
                    let count = rest.filled().len();
                    if count == 0 {
                        return Poll::Ready(Err(reset()));
                    }
                    *filled += count;
                    if *filled < HEADER {
                        continue;
                    }
                    let length = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
                    this.reading = match bytes[0] {
                        DATA if length == 0 => START,
                        DATA if length <= MAX_FRAME => Reading::Body { left: length },
                        END if length == 0 => Reading::Ended,
                        _ => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                    };
                }
                Reading::Body { left } => {
                    let mut part = buffer.take(*left);
                    if part.capacity() == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
                    let (count, initialized) = (part.filled().len(), part.initialized().len());
                    if count == 0 {
                        return Poll::Ready(Err(reset()));
                    }
                    // SAFETY: `part` is the beginning of what was unfilled, and says how much of it is initialized.
                    unsafe { buffer.assume_init(initialized) };
                    buffer.advance(count);
                    *left -= count;
                    if *left == 0 {
                        this.reading = START;
                    }
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> CarriedStream<S> {
    /// Sends an empty frame. Without one from the side that accepted the stream it is not acknowledged, and the
    /// multiplexer opens no more than 256 of those.
    pub async fn acknowledge(&mut self) -> io::Result<()> {
        self.stream.write_all(&header(DATA, 0)).await?;
        self.stream.flush().await
    }

    /// Sends what is left of a header.
    fn poll_header(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Writing::Header { bytes, sent, length } = &mut self.writing {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, &bytes[*sent..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *sent += count;
            if *sent == HEADER {
                self.writing = Writing::Body { left: *length };
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends a header together with the first bytes it announces; says how many of those were taken.
    fn poll_short(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut frame = [0; HEADER + SHORT];
        let start = header(DATA, bytes.len());
        frame[..HEADER].copy_from_slice(&start);
        frame[HEADER..HEADER + bytes.len()].copy_from_slice(bytes);
        let count = ready!(Pin::new(&mut self.stream).poll_write(context, &frame[..HEADER + bytes.len()]))?;
        if count < HEADER {
            // The header is under way; the caller comes back with the bytes.
            self.writing = Writing::Header { bytes: start, sent: count, length: bytes.len() };
            return self.poll_body(context, bytes);
        }
        let taken = count - HEADER;
        self.writing = match bytes.len() - taken {
            0 => Writing::Idle,
            left => Writing::Body { left },
        };
        match taken {
            0 => self.poll_body(context, bytes),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    /// Sends bytes that a header has announced, or announces.
    fn poll_body(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_header(context))?;
        let Writing::Body { left } = &mut self.writing else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let part = &bytes[..bytes.len().min(*left)];
        let count = ready!(Pin::new(&mut self.stream).poll_write(context, part))?;
        *left -= count;
        if *left == 0 {
            self.writing = Writing::Idle;
        }
        Poll::Ready(if count == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(count) })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CarriedStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        match this.writing {
            Writing::Idle if bytes.len() <= SHORT => return this.poll_short(context, bytes),
            Writing::Idle => {
                let length = bytes.len().min(LONGEST);
                this.writing = Writing::Header { bytes: header(DATA, length), sent: 0, length };
            }
            Writing::Header { .. } | Writing::Body { .. } => {}
            Writing::End { .. } | Writing::Closing => {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
        }
        this.poll_body(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    /// Sends a FIN. Bytes that were announced by a write that nobody finished make it a reset.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match &mut this.writing {
                Writing::Idle => this.writing = Writing::End { sent: 0 },
                Writing::Header { .. } | Writing::Body { .. } => {
                    return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
                }
                Writing::End { sent } => {
                    let end = header(END, 0);
                    let count = ready!(Pin::new(&mut this.stream).poll_write(context, &end[*sent..]))?;
                    if count == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    *sent += count;
                    if *sent == HEADER {
                        this.writing = Writing::Closing;
                    }
                }
                Writing::Closing => return Pin::new(&mut this.stream).poll_shutdown(context),
            }
        }
    }
}

#[cfg(test)]
#[path = "carried_tests.rs"]
mod tests;
