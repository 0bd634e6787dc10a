//! Sockets passed beside the bytes of a connection (`SCM_RIGHTS`), from the agent to the host and never
//! back: a socket of the host inside a sandbox could be connected to somewhere else. One message carries at
//! most one; its cookie, which both sides ask the kernel for, says which it is. The host trusts nothing: a
//! descriptor that is neither a connected TCP socket nor one end of an unnamed socket pair is closed.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::FileType;
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrAny, SocketType, ipproto, sockopt,
};

/// Maximum number of received sockets that were not taken yet.
const MOST_UNCLAIMED: usize = 256;

type Queue<T> = Arc<Mutex<VecDeque<T>>>;

fn lock<T>(queue: &Mutex<VecDeque<T>>) -> MutexGuard<'_, VecDeque<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel's cookie of a socket, the same for all its holders.
pub fn socket_cookie(socket: impl AsFd) -> io::Result<u64> {
    Ok(sockopt::socket_cookie(socket)?)
}

/// Sends sockets from the agent to the host: each goes with the next bytes that are written.
#[derive(Debug, Clone, Default)]
pub struct DescriptorSender {
    waiting: Queue<OwnedFd>,
    closed: Arc<AtomicBool>,
}

impl DescriptorSender {
    /// Queues a socket; the message that mentions it must be written afterwards.
    pub fn push(&self, socket: OwnedFd) {
        let mut waiting = lock(&self.waiting);
        if !self.closed.load(Ordering::Relaxed) {
            waiting.push_back(socket);
        }
    }

    /// The connection has ended: queued sockets are closed at once, and so are later ones.
    pub fn close(&self) {
        let mut waiting = lock(&self.waiting);
        self.closed.store(true, Ordering::Relaxed);
        waiting.clear();
    }

    /// Sends bytes, and with them the next queued socket.
    pub(crate) fn send(
        &self,
        to: BorrowedFd<'_>,
        parts: &[IoSlice<'_>],
        flags: SendFlags,
    ) -> rustix::io::Result<usize> {
        let mut waiting = lock(&self.waiting);
        while let Some(socket) = waiting.pop_front() {
            // With more than one queued only a byte is sent now, so that none comes after the message that
            // mentions it.
            let first = parts.iter().find(|part| !part.is_empty()).and_then(|part| part.get(..1));
            let byte = [IoSlice::new(first.unwrap_or_default())];
            let parts = if waiting.is_empty() { parts } else { &byte };
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            let sockets = [socket.as_fd()];
            beside.push(SendAncillaryMessage::ScmRights(&sockets));
            match rustix::net::sendmsg(to, parts, &mut beside, flags) {
                Err(error @ (Errno::AGAIN | Errno::INTR)) => {
                    waiting.push_front(socket);
                    return Err(error);
                }
                // Too many are in flight: this one is lost, and the host will not find it.
                Err(Errno::TOOMANYREFS) => {}
                sent => return sent,
            }
        }
        drop(waiting);
        rustix::net::sendmsg(to, parts, &mut SendAncillaryBuffer::default(), flags)
    }
}

/// What a received socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// A connected TCP socket.
    Tcp,
    /// One end of a stream socket pair. Neither end has a name, so no listener is behind it.
    Pair,
}

/// A received socket.
#[derive(Debug)]
struct ReceivedSocket {
    cookie: u64,
    kind: SocketKind,
    socket: OwnedFd,
}

/// The sockets the host has received.
#[derive(Debug, Clone, Default)]
pub struct DescriptorReceiver(Queue<ReceivedSocket>);

impl DescriptorReceiver {
    /// The socket with this cookie, in non-blocking mode, if it was received and is of this kind.
    #[must_use]
    pub fn take(&self, cookie: u64, kind: SocketKind) -> Option<OwnedFd> {
        let mut unclaimed = lock(&self.0);
        let place = unclaimed.iter().position(|one| one.cookie == cookie && one.kind == kind)?;
        unclaimed.remove(place).map(|one| one.socket)
    }

    /// Receives bytes, and keeps the socket that came with them. Returns the number of bytes and whether the
    /// socket buffer is known to be empty: the kernel ends a read after bytes that carry a descriptor.
    pub(crate) fn receive(
        &self,
        from: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> rustix::io::Result<(usize, bool)> {
        let room = buffer.len();
        // The kernel rounds up: there is room for a second one, which is detected and rejected.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let message = rustix::net::recvmsg(from, &mut [IoSliceMut::new(buffer)], &mut beside, flags)?;
        let mut came = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                came.extend(descriptors);
            }
        }
        let whole = !message.flags.contains(ReturnFlags::CTRUNC);
        let was_all = whole && came.is_empty() && message.bytes < room;
        if let (Some(descriptor), true, true) = (came.pop(), came.is_empty(), whole)
            && let Some(checked) = check(descriptor)
        {
            let mut unclaimed = lock(&self.0);
            if unclaimed.len() < MOST_UNCLAIMED {
                unclaimed.push_back(checked);
            }
        }
        Ok((message.bytes, was_all))
    }
}

/// A descriptor with its cookie, if it is a socket that may be passed.
fn check(descriptor: OwnedFd) -> Option<ReceivedSocket> {
    let mode = rustix::fs::fstat(&descriptor).ok()?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Socket
        || sockopt::socket_type(&descriptor).ok()? != SocketType::STREAM
        || sockopt::socket_acceptconn(&descriptor).ok()?
    {
        return None;
    }
    let peer = rustix::net::getpeername(&descriptor).ok()??;
    let kind = match sockopt::socket_domain(&descriptor).ok()? {
        AddressFamily::INET | AddressFamily::INET6
            if sockopt::socket_protocol(&descriptor).ok()? == Some(ipproto::TCP) =>
        {
            SocketKind::Tcp
        }
        AddressFamily::UNIX
            if is_unnamed(&peer) && is_unnamed(&rustix::net::getsockname(&descriptor).ok()?) =>
        {
            SocketKind::Pair
        }
        _ => return None,
    };
    rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC).ok()?;
    rustix::io::ioctl_fionbio(&descriptor, true).ok()?;
    Some(ReceivedSocket { cookie: socket_cookie(&descriptor).ok()?, kind, socket: descriptor })
}

/// Whether an address is a family without a name.
fn is_unnamed(address: &SocketAddrAny) -> bool {
    usize::try_from(address.addr_len()).is_ok_and(|length| length == size_of::<u16>())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

    use super::*;

    const NONE: SendFlags = SendFlags::empty();

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// Sends descriptors in one message, as a hostile agent may; returns those the host keeps.
    fn sent(descriptors: &[BorrowedFd<'_>]) -> Vec<ReceivedSocket> {
        let (agent, host) = UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(beside.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        rustix::net::sendmsg(&agent, &[IoSlice::new(b"abc")], &mut beside, NONE).unwrap();
        let (receiver, mut bytes) = (DescriptorReceiver::default(), [0; 8]);
        assert_eq!(receiver.receive(host.as_fd(), &mut bytes).unwrap().0, 3);
        assert_eq!(&bytes[..3], b"abc");
        lock(&receiver.0).drain(..).collect()
    }

    #[test]
    fn one_connected_tcp_socket_is_received_and_made_non_blocking() {
        let (mut near, far) = connected();
        let mut kept = sent(&[far.as_fd()]);
        let ReceivedSocket { cookie, kind, socket } = kept.pop().unwrap();
        assert!(kept.is_empty());
        assert_eq!((cookie, kind), (socket_cookie(&far).unwrap(), SocketKind::Tcp));
        assert!(rustix::io::fcntl_getfd(&socket).unwrap().contains(FdFlags::CLOEXEC));
        assert!(rustix::fs::fcntl_getfl(&socket).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        drop((far, socket));
        assert_eq!(near.read(&mut [0]).unwrap(), 0, "no other copy is left");
    }

    /// An abstract socket name that no other test uses.
    fn name() -> String {
        format!("isle-handed-{}-{:?}", std::process::id(), std::thread::current().id())
    }

    #[test]
    fn an_end_of_a_pair_is_returned_only_where_one_is_expected() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut kept = sent(&[far.as_fd()]);
        let handed = kept.pop().unwrap();
        assert_eq!((handed.cookie, handed.kind), (socket_cookie(&far).unwrap(), SocketKind::Pair));
        let (cookie, receiver) = (handed.cookie, DescriptorReceiver::default());
        lock(&receiver.0).push_back(handed);
        assert!(receiver.take(cookie, SocketKind::Tcp).is_none());
        assert!(receiver.take(cookie, SocketKind::Pair).is_some());
        drop(near);
    }

    #[test]
    fn a_descriptor_that_is_not_one_connected_socket_is_closed() {
        let (pipe, writer) = rustix::pipe::pipe().unwrap();
        let named = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name()).unwrap()).unwrap();
        let at_name = UnixStream::connect_addr(&named.local_addr().unwrap()).unwrap();
        let (by_name, _) = named.accept().unwrap();
        let (letters, _other) = UnixDatagram::pair().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.connect("127.0.0.1:9").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let unconnected =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        let (near, far) = connected();
        for (what, descriptors) in [
            ("none", vec![]),
            ("a pipe", vec![writer.as_fd()]),
            ("a file", vec![file.as_fd()]),
            ("a Unix socket connected to somebody's name", vec![at_name.as_fd()]),
            ("one that came by a name", vec![by_name.as_fd()]),
            ("one that listens", vec![named.as_fd()]),
            ("one for datagrams", vec![letters.as_fd()]),
            ("a UDP socket", vec![datagrams.as_fd()]),
            ("a listener", vec![listener.as_fd()]),
            ("one without another end", vec![unconnected.as_fd()]),
            ("two", vec![near.as_fd(), far.as_fd()]),
            ("many", vec![far.as_fd(); 8]),
        ] {
            assert!(sent(&descriptors).is_empty(), "{what}");
        }
        // No copy is left: without writers a pipe ends.
        drop(writer);
        assert_eq!(std::fs::File::from(pipe).read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn the_number_of_untaken_sockets_is_bounded() {
        let (agent, host) = UnixStream::pair().unwrap();
        let (sender, receiver) = (DescriptorSender::default(), DescriptorReceiver::default());
        let (_near, far) = connected();
        for _ in 0..MOST_UNCLAIMED + 5 {
            sender.push(far.try_clone().unwrap().into());
            assert_eq!(sender.send(agent.as_fd(), &[IoSlice::new(b"x")], NONE).unwrap(), 1);
            assert_eq!(receiver.receive(host.as_fd(), &mut [0; 8]).unwrap().0, 1);
        }
        assert_eq!(lock(&receiver.0).len(), MOST_UNCLAIMED);
    }

    #[test]
    fn closing_the_sender_closes_queued_and_later_sockets() {
        use std::io::Read;
        let sender = DescriptorSender::default();
        let other_handle = sender.clone();
        for late in [false, true] {
            let (mut near, far) = UnixStream::pair().unwrap();
            if late {
                other_handle.push(far.into());
            } else {
                sender.push(far.into());
                sender.close();
            }
            assert_eq!(near.read(&mut [0]).unwrap(), 0, "late: {late}");
        }
    }

    #[test]
    fn each_socket_arrives_no_later_than_the_message_about_it() {
        let (agent, host) = UnixStream::pair().unwrap();
        let (sender, receiver) = (DescriptorSender::default(), DescriptorReceiver::default());
        let pairs: Vec<_> = (0..5).map(|_| connected()).collect();
        let numbers: Vec<u64> = pairs.iter().map(|(_, far)| socket_cookie(far).unwrap()).collect();
        for (_, far) in &pairs {
            sender.push(far.try_clone().unwrap().into());
        }
        let (text, mut sent) = (b"the bytes that mention all five", 0);
        while sent < text.len() {
            let parts = [IoSlice::new(&[]), IoSlice::new(&text[sent..])];
            sent += sender.send(agent.as_fd(), &parts, NONE).unwrap();
        }
        let (mut heard, mut buffer) = (Vec::new(), [0; 64]);
        while heard.len() < text.len() {
            let (count, _) = receiver.receive(host.as_fd(), &mut buffer).unwrap();
            heard.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(heard, text);
        for cookie in numbers {
            assert!(receiver.take(cookie, SocketKind::Tcp).is_some());
            assert!(receiver.take(cookie, SocketKind::Tcp).is_none(), "only once");
        }
    }
}
