//! A connection to the world that counts and paces what goes over it, for connections whose bytes somebody
//! else moves.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Sleep;

use crate::account::{Direction, Tally};
use crate::relay::Moved;

/// What the connections of one program moved.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) tally: Arc<Tally>,
    sent: AtomicU64,
    received: AtomicU64,
    exhausted: Notify,
}

impl Meter {
    pub(crate) fn new(tally: Arc<Tally>) -> Arc<Self> {
        Arc::new(Self {
            tally,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            exhausted: Notify::new(),
        })
    }

    pub(crate) fn moved(&self) -> Moved {
        Moved { sent: self.sent.load(Ordering::Relaxed), received: self.received.load(Ordering::Relaxed) }
    }

    /// Resolves when the grant has no bytes left.
    pub(crate) async fn exhausted(&self) {
        self.exhausted.notified().await;
    }

    /// What is said when bytes may not go.
    fn exhaust(&self) -> io::Error {
        self.exhausted.notify_one();
        io::Error::other("the bytes of the grant are used up")
    }

    /// Counts bytes that were set apart; gives how long to wait until more may go.
    fn count(&self, direction: Direction, bytes: usize) -> Option<Pin<Box<Sleep>>> {
        self.tally.count_moved(direction, bytes);
        let counter = match direction {
            Direction::Sent => &self.sent,
            Direction::Received => &self.received,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        let wait = self.tally.pace.as_ref().and_then(|pace| pace.after(bytes));
        wait.map(|until| Box::pin(tokio::time::sleep_until(until)))
    }

    fn portion(&self) -> usize {
        self.tally.pace.as_ref().map_or(usize::MAX, |pace| pace.portion())
    }
}

/// A connection that is counted.
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
        let passed = this.meter.tally.reserve(count);
        this.reading_waits = (passed > 0).then(|| this.meter.count(Direction::Received, passed)).flatten();
        buffer.set_filled(before + passed);
        let used_up = (passed < count).then(|| this.meter.exhaust());
        // What is left of the last bytes is no error yet.
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
        // Bytes are set apart for this call alone, and when there is room: others would miss them.
        ready!(this.stream.poll_write_ready(context))?;
        let reserved = this.meter.tally.reserve(part.len());
        if reserved == 0 && !part.is_empty() {
            return Poll::Ready(Err(this.meter.exhaust()));
        }
        let written = Pin::new(&mut this.stream).poll_write(context, &part[..reserved]);
        let count = if let Poll::Ready(Ok(count)) = &written { *count } else { 0 };
        this.meter.tally.release(reserved - count);
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
