//! A Unix socket that is watched for input only. The usual kind is watched for room to write as well,
//! and there is room again each time the other side reads: every small message would wake its sender
//! once more, for nothing. Here room is watched for only while a write waits for it.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::handed::{Inbox, Outbox};

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// See the module.
#[derive(Debug)]
pub struct QuietSocket {
    socket: AsyncFd<OwnedFd>,
    /// The same socket, watched for room: from a write that found none to the next one that does.
    room: Option<AsyncFd<OwnedFd>>,
    beside: Beside,
}

/// What travels beside the bytes.
#[derive(Debug)]
enum Beside {
    /// Nothing; what comes is thrown away by the kernel.
    Nothing,
    /// Sockets to the other side.
    Out(Outbox),
    /// Sockets from the other side.
    In(Inbox),
}

impl QuietSocket {
    /// Takes a connected socket over.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        Self::with(stream, Beside::Nothing)
    }

    /// Sends what is put into the outbox beside its bytes.
    pub fn handing(stream: UnixStream, outbox: Outbox) -> io::Result<Self> {
        Self::with(stream, Beside::Out(outbox))
    }

    /// Takes sockets that come beside its bytes.
    pub fn handed(stream: UnixStream) -> io::Result<Self> {
        Self::with(stream, Beside::In(Inbox::default()))
    }

    fn with(stream: UnixStream, beside: Beside) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { socket: watch(stream.into(), Interest::READABLE)?, room: None, beside })
    }

    /// Where sockets arrive that come beside its bytes.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        match &self.beside {
            Beside::In(inbox) => inbox.clone(),
            Beside::Nothing | Beside::Out(_) => Inbox::default(),
        }
    }

    /// Receives bytes; says how many, and whether that was all there was.
    fn receive(&self, buffer: &mut [u8]) -> rustix::io::Result<(usize, bool)> {
        let room = buffer.len();
        match &self.beside {
            Beside::In(inbox) => inbox.receive(self.socket.as_fd(), buffer),
            Beside::Nothing | Beside::Out(_) => {
                let (count, _) = rustix::net::recv(self.socket.as_fd(), buffer, RecvFlags::DONTWAIT)?;
                Ok((count, count < room))
            }
        }
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        let socket = self.socket.as_fd();
        match (&self.beside, parts) {
            (Beside::Out(outbox), _) => outbox.send(socket, parts, SEND),
            (Beside::Nothing | Beside::In(_), [only]) => rustix::net::send(socket, only, SEND),
            (Beside::Nothing | Beside::In(_), _) => {
                rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SEND)
            }
        }
    }

    /// Writes without waiting, or waits for room.
    fn poll_send(&mut self, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            match self.send(parts) {
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                sent => {
                    if self.room.take().is_some() {
                        // An earlier write may still wait for the word that will now not come: a buffer
                        // can be flushed between its two attempts.
                        context.waker().wake_by_ref();
                    }
                    return Poll::Ready(sent.map_err(Into::into));
                }
            }
            let room = match &mut self.room {
                Some(room) => room,
                none => {
                    let again = self.socket.get_ref().try_clone()?;
                    none.insert(watch(again, Interest::WRITABLE)?)
                }
            };
            // Taking the word back before looking again loses nothing: room made meanwhile is told anew.
            ready!(room.poll_write_ready(context))?.clear_ready();
        }
    }
}

fn watch(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays the same and open until it is dropped, which the result does.
    unsafe { AsyncFd::register_with_interest(socket, interest) }.map_err(Into::into)
}

impl AsFd for QuietSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsyncRead for QuietSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(context))?;
            match self.receive(buffer.initialize_unfilled()) {
                Ok((count, was_all)) => {
                    // More is told anew.
                    if 0 < count && was_all {
                        guard.clear_ready();
                    }
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl AsyncWrite for QuietSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match rustix::net::shutdown(self.socket.as_fd(), Shutdown::Write) {
            // Who is gone already needs no word.
            Ok(()) | Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (QuietSocket, QuietSocket) {
        let (one, other) = UnixStream::pair().unwrap();
        (QuietSocket::new(one).unwrap(), QuietSocket::new(other).unwrap())
    }

    #[tokio::test]
    async fn more_than_fits_arrives_whole_and_in_order() {
        let (mut writer, mut reader) = pair();
        let bytes: Vec<u8> = (0..8_000_000_u32).map(|number| (number % 251) as u8).collect();
        let expected = bytes.clone();
        let sending = tokio::spawn(async move {
            for part in bytes.chunks(70_001) {
                writer.write_all(part).await.unwrap();
                writer.flush().await.unwrap();
            }
            writer.shutdown().await.unwrap();
        });
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.unwrap();
        sending.await.unwrap();
        assert_eq!(received.len(), expected.len());
        assert!(received == expected);
    }

    #[tokio::test]
    async fn a_write_that_waits_is_woken_when_another_takes_its_room() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        use std::task::{Wake, Waker};

        #[derive(Default)]
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        let (writer, reader) = pair();
        let (mut writer, count) = (std::pin::pin!(writer), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        while writer.as_mut().poll_write(&mut context, &[0; 65536]).is_ready() {}
        let mut sink = vec![0; 1 << 20];
        while rustix::net::recv(&reader, &mut sink, RecvFlags::DONTWAIT).is_ok() {}
        // Nobody else has run, so the word that there is room has not come yet.
        assert!(writer.as_mut().poll_write(&mut context, b"x").is_ready());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_multiplexed_stream_carries_more_than_the_socket_holds() {
        let (host, agent) = pair();
        let (mux, _, driver) = crate::Mux::new(host, crate::Side::Host);
        tokio::spawn(driver);
        let (_kept, mut incoming, driver) = crate::Mux::new(agent, crate::Side::Agent);
        tokio::spawn(driver);
        let mut stream = mux.open().await.unwrap();
        let sending = tokio::spawn(async move {
            stream.write_all(&vec![7; 5_000_000]).await.unwrap();
            stream.shutdown().await.unwrap();
            stream
        });
        let mut accepted = incoming.accept().await.unwrap();
        let mut received = Vec::new();
        accepted.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, vec![7; 5_000_000]);
        drop(sending.await.unwrap());
    }

    #[tokio::test]
    async fn parts_are_sent_together_and_a_closed_end_is_an_error() {
        let (mut writer, mut reader) = pair();
        let sent = writer.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cd")]).await.unwrap();
        assert_eq!(sent, 4);
        let mut received = [0; 8];
        assert_eq!(reader.read(&mut received).await.unwrap(), 4);
        assert_eq!(&received[..4], b"abcd");
        drop(reader);
        assert_eq!(writer.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(writer.read(&mut received).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn bytes_behind_those_that_carry_a_socket_are_read_without_another_word() {
        use std::net::{TcpListener, TcpStream};

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let number = crate::socket_number(&socket).unwrap();
        let ((agent, host), outbox) = (UnixStream::pair().unwrap(), Outbox::default());
        let mut agent = QuietSocket::handing(agent, outbox.clone()).unwrap();
        let mut host = QuietSocket::handed(host).unwrap();
        outbox.put(socket.into());
        agent.write_all(b"with it").await.unwrap();
        agent.write_all(b", behind it").await.unwrap();
        let mut heard = [0; 18];
        let reading = tokio::time::timeout(std::time::Duration::from_secs(20), host.read_exact(&mut heard));
        reading.await.expect("nobody says a third time that there is something").unwrap();
        assert_eq!(&heard, b"with it, behind it");
        assert!(host.inbox().take(number, crate::Kind::Tcp).is_some());
    }
}
