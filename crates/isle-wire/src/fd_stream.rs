//! An asynchronous byte stream over file descriptors: a Unix socket, a pair of pipes or a character
//! device. Unlike tokio's types it is registered with epoll for input only. Writability is watched only
//! while a write waits for it, because a socket becomes writable again each time the peer reads, and
//! every small message would wake its sender once more for nothing.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::descriptors::{DescriptorReceiver, DescriptorSender};

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// See the module.
#[derive(Debug)]
pub struct FdStream {
    input: AsyncFd<OwnedFd>,
    /// A second registration of the descriptor that is written to, for writability: from a write that
    /// would block to the next one that succeeds.
    writable: Option<AsyncFd<OwnedFd>>,
    transport: Transport,
}

/// What is behind the descriptor.
#[derive(Debug)]
enum Transport {
    /// A socket. Descriptors that arrive are closed by the kernel.
    Socket,
    /// A socket on which descriptors are sent.
    SocketSending(DescriptorSender),
    /// A socket on which descriptors are received.
    SocketReceiving(DescriptorReceiver),
    /// Two pipes; the one to write to, until it is closed.
    Pipes(Option<OwnedFd>),
    /// A character device: one descriptor for both directions, and no half-close.
    Device,
}

impl FdStream {
    /// A connected socket.
    pub fn socket(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream.into(), Transport::Socket)
    }

    /// A connected socket that also sends the descriptors given to `sender`.
    pub fn socket_sending(stream: UnixStream, sender: DescriptorSender) -> io::Result<Self> {
        Self::new(stream.into(), Transport::SocketSending(sender))
    }

    /// A connected socket that also receives descriptors: see [`FdStream::receiver`].
    pub fn socket_receiving(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream.into(), Transport::SocketReceiving(DescriptorReceiver::default()))
    }

    /// A pipe to read from and a pipe to write to.
    pub fn pipes(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&output, true)?;
        Self::new(input, Transport::Pipes(Some(output)))
    }

    /// A character device that was opened for reading and writing.
    pub fn device(device: OwnedFd) -> io::Result<Self> {
        Self::new(device, Transport::Device)
    }

    fn new(input: OwnedFd, transport: Transport) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&input, true)?;
        Ok(Self { input: register(input, Interest::READABLE)?, writable: None, transport })
    }

    /// Where descriptors arrive that come with the bytes; one that stays empty unless the stream was
    /// made by [`FdStream::socket_receiving`].
    #[must_use]
    pub fn receiver(&self) -> DescriptorReceiver {
        match &self.transport {
            Transport::SocketReceiving(receiver) => receiver.clone(),
            Transport::Socket | Transport::SocketSending(_) | Transport::Pipes(_) | Transport::Device => {
                DescriptorReceiver::default()
            }
        }
    }

    /// Reads without blocking. Returns the number of bytes and whether the input is known to be empty
    /// now, so that no second read is needed to find that out.
    fn receive(&self, buffer: &mut [u8]) -> rustix::io::Result<(usize, bool)> {
        let room = buffer.len();
        match &self.transport {
            Transport::SocketReceiving(receiver) => receiver.receive(self.input.as_fd(), buffer),
            Transport::Socket | Transport::SocketSending(_) => {
                let (count, _) = rustix::net::recv(self.input.as_fd(), buffer, RecvFlags::DONTWAIT)?;
                Ok((count, count < room))
            }
            // A short read of a device proves nothing: a terminal returns what one write put there.
            Transport::Pipes(_) | Transport::Device => {
                Ok((rustix::io::read(self.input.as_fd(), buffer)?, false))
            }
        }
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        let socket = self.input.as_fd();
        match (&self.transport, parts) {
            (Transport::SocketSending(sender), _) => sender.send(socket, parts, SEND),
            (Transport::Socket | Transport::SocketReceiving(_), [only]) => {
                rustix::net::send(socket, only, SEND)
            }
            (Transport::Socket | Transport::SocketReceiving(_), _) => {
                rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SEND)
            }
            (Transport::Pipes(Some(output)), _) => rustix::io::writev(output, parts),
            (Transport::Pipes(None), _) => Err(Errno::PIPE),
            (Transport::Device, _) => rustix::io::writev(socket, parts),
        }
    }

    /// A duplicate of the descriptor that is written to.
    fn duplicate_output(&self) -> io::Result<OwnedFd> {
        match &self.transport {
            Transport::Pipes(Some(output)) => output.try_clone(),
            Transport::Pipes(None) => Err(io::ErrorKind::BrokenPipe.into()),
            Transport::Socket
            | Transport::SocketSending(_)
            | Transport::SocketReceiving(_)
            | Transport::Device => self.input.get_ref().try_clone(),
        }
    }

    /// Writes without blocking, or waits for writability.
    fn poll_send(&mut self, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            match self.send(parts) {
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                sent => {
                    if self.writable.take().is_some() {
                        // An earlier write may still wait for a notification that will not come now: a
                        // buffer can be flushed between its two attempts.
                        context.waker().wake_by_ref();
                    }
                    return Poll::Ready(sent.map_err(Into::into));
                }
            }
            if self.writable.is_none() {
                self.writable = Some(register(self.duplicate_output()?, Interest::WRITABLE)?);
            }
            if let Some(writable) = &self.writable {
                // Clearing the state before the next attempt loses nothing: space that was freed
                // meanwhile is reported again.
                ready!(writable.poll_write_ready(context))?.clear_ready();
            }
        }
    }
}

fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays the same and open until it is dropped, which the result does.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(Into::into)
}

impl AsFd for FdStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }
}

impl AsyncRead for FdStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.input.poll_read_ready(context))?;
            match self.receive(buffer.initialize_unfilled()) {
                Ok((count, is_empty)) => {
                    // New input sets the state again.
                    if 0 < count && is_empty {
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

impl AsyncWrite for FdStream {
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

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Pipes(output) => *output = None,
            Transport::Device => {}
            Transport::Socket | Transport::SocketSending(_) | Transport::SocketReceiving(_) => {
                match rustix::net::shutdown(self.input.as_fd(), Shutdown::Write) {
                    // A peer that has disconnected already needs no notification.
                    Ok(()) | Err(Errno::NOTCONN) => {}
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
        }
        self.writable = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn sockets() -> (FdStream, FdStream) {
        let (one, other) = UnixStream::pair().unwrap();
        (FdStream::socket(one).unwrap(), FdStream::socket(other).unwrap())
    }

    fn pipes() -> (FdStream, FdStream) {
        let (forth, back) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
        (FdStream::pipes(back.0, forth.1).unwrap(), FdStream::pipes(forth.0, back.1).unwrap())
    }

    /// A pseudoterminal in raw mode: the nearest thing to a virtio-serial port.
    fn devices() -> (FdStream, FdStream) {
        use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
        use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        let mut attributes = tcgetattr(&slave).unwrap();
        attributes.make_raw();
        tcsetattr(&slave, OptionalActions::Now, &attributes).unwrap();
        (FdStream::device(master).unwrap(), FdStream::device(slave).unwrap())
    }

    #[tokio::test]
    async fn more_than_fits_arrives_whole_and_in_order() {
        let (mut writer, mut reader) = sockets();
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
    async fn a_waiting_write_is_woken_when_another_uses_the_free_space() {
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

        let (writer, reader) = sockets();
        let (mut writer, count) = (std::pin::pin!(writer), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        while writer.as_mut().poll_write(&mut context, &[0; 65536]).is_ready() {}
        let mut sink = vec![0; 1 << 20];
        while rustix::net::recv(&reader, &mut sink, RecvFlags::DONTWAIT).is_ok() {}
        // No other task has run, so the notification of free space has not arrived yet.
        assert!(writer.as_mut().poll_write(&mut context, b"x").is_ready());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_multiplexed_stream_carries_more_than_any_link_buffers() {
        for (kind, (host, agent)) in [("sockets", sockets()), ("pipes", pipes()), ("devices", devices())] {
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
            assert!(received == vec![7; 5_000_000], "{kind}");
            drop(sending.await.unwrap());
        }
    }

    #[tokio::test]
    async fn closing_a_pair_of_pipes_for_writing_leaves_it_readable() {
        let (mut host, mut agent) = pipes();
        host.write_all(b"question").await.unwrap();
        host.shutdown().await.unwrap();
        let mut heard = Vec::new();
        agent.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"question");
        agent.write_all(b"answer").await.unwrap();
        drop(agent);
        heard.clear();
        host.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"answer");
        assert_eq!(host.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn parts_are_sent_together_and_a_closed_end_is_an_error() {
        let (mut writer, mut reader) = sockets();
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
    async fn bytes_after_those_that_carry_a_socket_need_no_second_notification() {
        use std::net::{TcpListener, TcpStream};

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let number = crate::socket_cookie(&socket).unwrap();
        let ((agent, host), sender) = (UnixStream::pair().unwrap(), DescriptorSender::default());
        let mut agent = FdStream::socket_sending(agent, sender.clone()).unwrap();
        let mut host = FdStream::socket_receiving(host).unwrap();
        sender.push(socket.into());
        agent.write_all(b"with it").await.unwrap();
        agent.write_all(b", behind it").await.unwrap();
        let mut heard = [0; 18];
        let reading = tokio::time::timeout(std::time::Duration::from_secs(20), host.read_exact(&mut heard));
        reading.await.expect("no third notification comes").unwrap();
        assert_eq!(&heard, b"with it, behind it");
        assert!(host.receiver().take(number, crate::SocketKind::Tcp).is_some());
    }
}
