//! A connection to a server that counts and rate limits its bytes, for connections that hyper or rustls
//! read and write.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Sleep;

use crate::accounting::grant_counters::{Direction, GrantCounters};
use crate::relay::BytesMoved;

/// Bytes moved by the connections of one program.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) counters: Arc<GrantCounters>,
    sent: AtomicU64,
    received: AtomicU64,
    exhausted: Notify,
}

impl Meter {
    pub(crate) fn new(counters: Arc<GrantCounters>) -> Arc<Self> {
        Arc::new(Self {
            counters,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            exhausted: Notify::new(),
        })
    }

    pub(crate) fn moved(&self) -> BytesMoved {
        BytesMoved {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }

    /// Resolves when the byte limit of the grant is used up.
    pub(crate) async fn exhausted(&self) {
        self.exhausted.notified().await;
    }

    /// The error when no more bytes may be sent.
    fn exhaust(&self) -> io::Error {
        self.exhausted.notify_one();
        io::Error::other("the byte limit of the grant is used up")
    }

    /// Counts reserved bytes; returns how long to wait before the next ones.
    fn count(&self, direction: Direction, bytes: usize) -> Option<Pin<Box<Sleep>>> {
        self.counters.count_moved(direction, bytes);
        let counter = match direction {
            Direction::Sent => &self.sent,
            Direction::Received => &self.received,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        let wait = self.counters.rate_limit.as_ref().and_then(|rate_limit| rate_limit.after(bytes));
        wait.map(|until| Box::pin(tokio::time::sleep_until(until)))
    }

    fn portion(&self) -> usize {
        self.counters.rate_limit.as_ref().map_or(usize::MAX, |rate_limit| rate_limit.portion())
    }
}

/// A counted connection.
#[derive(Debug)]
pub(crate) struct Metered {
    stream: TcpStream,
    meter: Arc<Meter>,
    reading_waits: Option<Pin<Box<Sleep>>>,
    writing_waits: Option<Pin<Box<Sleep>>>,
}

impl Metered {
    pub(crate) fn new(stream: TcpStream, meter: Arc<Meter>) -> Self {
        Self { stream, meter, reading_waits: None, writing_waits: None }
    }
}

fn poll_wait(wait: &mut Option<Pin<Box<Sleep>>>, context: &mut Context<'_>) -> Poll<()> {
    if let Some(sleep) = wait {
        ready!(sleep.as_mut().poll(context));
        *wait = None;
    }
    Poll::Ready(())
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(poll_wait(&mut this.reading_waits, context));
        let (before, portion) = (buffer.filled().len(), this.meter.portion());
        let count = if buffer.remaining() <= portion {
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            buffer.filled().len() - before
        } else {
            let mut part = vec![0; portion];
            let mut part = ReadBuf::new(&mut part);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
            buffer.put_slice(part.filled());
            part.filled().len()
        };
        let passed = this.meter.counters.reserve(count);
        this.reading_waits = (passed > 0).then(|| this.meter.count(Direction::Received, passed)).flatten();
        buffer.set_filled(before + passed);
        let used_up = (passed < count).then(|| this.meter.exhaust());
        // The last allowed bytes are not an error yet.
        Poll::Ready(used_up.filter(|_| passed == 0).map_or(Ok(()), Err))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(poll_wait(&mut this.writing_waits, context));
        let part = &bytes[..bytes.len().min(this.meter.portion())];
        // Bytes are reserved for this call only, and when the socket is writable: others may need them.
        ready!(this.stream.poll_write_ready(context))?;
        let reserved = this.meter.counters.reserve(part.len());
        if reserved == 0 && !part.is_empty() {
            return Poll::Ready(Err(this.meter.exhaust()));
        }
        let written = Pin::new(&mut this.stream).poll_write(context, &part[..reserved]);
        let count = if let Poll::Ready(Ok(count)) = &written { *count } else { 0 };
        this.meter.counters.release(reserved - count);
        this.writing_waits = (count > 0).then(|| this.meter.count(Direction::Sent, count)).flatten();
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
