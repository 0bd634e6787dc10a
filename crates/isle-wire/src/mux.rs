//! The multiplexer: many streams over one connection. A thin layer over yamux, so that the rest of the code
//! sees two handles (open, accept) and one future that must be polled.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};

use crate::cork::{Cork, Corked, corked};

/// Maximum number of streams of one connection.
const MOST_STREAMS: usize = 4096;
/// Maximum of unread bytes over all streams: the default window of each, and more for streams with high
/// throughput. The peer controls the measured round-trip time, and so how far windows grow.
const LARGEST_WINDOWS: usize = MOST_STREAMS * yamux::DEFAULT_CREDIT as usize + 32 * 1024 * 1024;

/// One stream of a [`Mux`]: dropping it before its end resets it.
pub type Stream = Compat<yamux::Stream>;

/// Which end of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Opens streams.
    Host,
    /// Accepts streams.
    Agent,
}

/// The connection has ended.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the connection to the agent has ended")]
pub struct MuxError;

type Opening = oneshot::Sender<Result<Stream, MuxError>>;

/// Opens streams. Cheap to clone; the connection closes when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Mux {
    open: mpsc::UnboundedSender<Opening>,
}

/// Accepts the streams the other side opens.
#[derive(Debug)]
pub struct Incoming {
    streams: mpsc::UnboundedReceiver<Stream>,
}

impl Mux {
    /// Wraps `socket`. The returned future moves the bytes and must be spawned; it ends when the
    /// connection does, or when the last [`Mux`] is dropped on the host's side.
    pub fn new<T>(socket: T, side: Side) -> (Self, Incoming, impl Future<Output = ()>)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let mode = match side {
            Side::Host => yamux::Mode::Client,
            Side::Agent => yamux::Mode::Server,
        };
        let mut config = yamux::Config::default();
        config.set_max_num_streams(MOST_STREAMS);
        config.set_max_connection_receive_window(Some(LARGEST_WINDOWS));
        config.set_split_send_size(64 * 1024);
        let (socket, cork) = corked(socket);
        let connection = yamux::Connection::new(socket.compat(), config, mode);
        let (open, opening) = mpsc::unbounded_channel();
        let (accepted, streams) = mpsc::unbounded_channel();
        let driver = Driver { connection, cork, side, opening, waiting: VecDeque::new(), accepted };
        (Self { open }, Incoming { streams }, driver.run())
    }

    /// Opens a stream.
    pub async fn open(&self) -> Result<Stream, MuxError> {
        let (sender, receiver) = oneshot::channel();
        self.open.send(sender).map_err(|_| MuxError)?;
        receiver.await.map_err(|_| MuxError)?
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.open.is_closed()
    }

    /// Resolves when the connection has ended.
    pub async fn closed(&self) {
        self.open.closed().await;
    }
}

impl Incoming {
    /// The next stream; `None` when the connection has ended.
    pub async fn accept(&mut self) -> Option<Stream> {
        self.streams.recv().await
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// One side closed it, or the multiplexer found a protocol error.
    Closed,
    /// Buffered bytes could not be written.
    Broken,
}

struct Driver<T> {
    connection: yamux::Connection<Compat<Corked<T>>>,
    cork: Cork<T>,
    side: Side,
    opening: mpsc::UnboundedReceiver<Opening>,
    waiting: VecDeque<Opening>,
    accepted: mpsc::UnboundedSender<Stream>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Driver<T> {
    async fn run(mut self) {
        let end = poll_fn(|context| match self.poll(context) {
            Poll::Ready(()) => Poll::Ready(End::Closed),
            Poll::Pending => self.cork.pull(context).map(|()| End::Broken),
        })
        .await;
        // Readers of a stream see the end when the connection is dropped, not when it is closed. A connection
        // that cannot be written to cannot be closed in an orderly way.
        if end == End::Closed {
            poll_fn(|context| self.connection.poll_close(context)).await.ok();
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.opening.poll_recv(context) {
                Poll::Ready(Some(sender)) => self.waiting.push_back(sender),
                Poll::Ready(None) if self.side == Side::Host => return Poll::Ready(()),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        while !self.waiting.is_empty() {
            match self.connection.poll_new_outbound(context) {
                Poll::Ready(Ok(stream)) => {
                    if let Some(sender) = self.waiting.pop_front() {
                        // The caller may have given up; dropping the stream then resets it.
                        sender.send(Ok(stream.compat())).ok();
                    }
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        loop {
            match self.connection.poll_next_inbound(context) {
                Poll::Ready(Some(Ok(stream))) => {
                    self.accepted.send(stream.compat()).ok();
                }
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};

    use super::*;

    /// A socket whose peer disconnects without the reading side noticing.
    struct Severed(Arc<AtomicBool>);

    impl AsyncRead for Severed {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Severed {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let gone = self.0.load(Ordering::Relaxed);
            Poll::Ready(if gone { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) })
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_reader_sees_the_end_of_a_connection_that_cannot_be_written_to() {
        let gone = Arc::new(AtomicBool::new(false));
        let (mux, _incoming, driver) = Mux::new(Severed(Arc::clone(&gone)), Side::Host);
        let driver = tokio::spawn(driver);
        let mut reading = mux.open().await.unwrap();
        let reader = tokio::spawn(async move {
            let mut buffer = [0; 8];
            reading.read(&mut buffer).await
        });
        // Both tasks wait now.
        tokio::task::yield_now().await;
        let mut writing = mux.open().await.unwrap();
        gone.store(true, Ordering::Relaxed);
        writing.write_all(b"anybody?").await.ok();
        // A reader that is polled again notices by itself; here nothing polls it.
        let heard = tokio::time::timeout(Duration::from_secs(20), reader).await;
        assert!(matches!(heard, Ok(Ok(Ok(0) | Err(_)))), "{heard:?}");
        driver.await.unwrap();
    }
}
