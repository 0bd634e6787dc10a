//! Sockets that travel beside the bytes of a connection, from the agent to the host and never back: a
//! socket of the host inside a sandbox could be pointed somewhere else. One message carries at most one;
//! a number that both sides ask the kernel for says which it is. The host believes nothing: whatever is
//! not one connected TCP socket, or one end of a pair that has no name, is closed.

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

/// Sockets that have arrived and that nobody has asked for yet.
const MOST_UNCLAIMED: usize = 256;

type Queue<T> = Arc<Mutex<VecDeque<T>>>;

fn lock<T>(queue: &Mutex<VecDeque<T>>) -> MutexGuard<'_, VecDeque<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of a socket, the same for everybody who holds it.
pub fn socket_number(socket: impl AsFd) -> io::Result<u64> {
    Ok(sockopt::socket_cookie(socket)?)
}

/// What the agent hands to the host: each goes with the next bytes that are sent.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    waiting: Queue<OwnedFd>,
    closed: Arc<AtomicBool>,
}

impl Outbox {
    /// Hands a socket over; bytes that speak of it are to be written afterwards.
    pub fn put(&self, socket: OwnedFd) {
        let mut waiting = lock(&self.waiting);
        if !self.closed.load(Ordering::Relaxed) {
            waiting.push_back(socket);
        }
    }

    /// Nobody takes anything any more. What waits is closed at once, whoever else still has this.
    pub fn close(&self) {
        let mut waiting = lock(&self.waiting);
        self.closed.store(true, Ordering::Relaxed);
        waiting.clear();
    }

    /// Sends bytes, and with them the next socket.
    pub(crate) fn send(
        &self,
        to: BorrowedFd<'_>,
        parts: &[IoSlice<'_>],
        flags: SendFlags,
    ) -> rustix::io::Result<usize> {
        let mut waiting = lock(&self.waiting);
        while let Some(socket) = waiting.pop_front() {
            // With more of them only a byte goes now, so that none is later than what speaks of it.
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
                // Too many are under way: this one is lost, and the host will not find it.
                Err(Errno::TOOMANYREFS) => {}
                sent => return sent,
            }
        }
        drop(waiting);
        rustix::net::sendmsg(to, parts, &mut SendAncillaryBuffer::default(), flags)
    }
}

/// What a socket is that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Connected, over TCP.
    Tcp,
    /// One end of a pair of streams, of which neither has a name: nobody else's listener is behind it.
    Pair,
}

/// A socket that was handed over.
#[derive(Debug)]
struct Handed {
    number: u64,
    kind: Kind,
    socket: OwnedFd,
}

/// What the host was handed.
#[derive(Debug, Clone, Default)]
pub struct Inbox(Queue<Handed>);

impl Inbox {
    /// The socket with this number, if it was handed over and is what is expected; it never blocks by itself.
    #[must_use]
    pub fn take(&self, number: u64, kind: Kind) -> Option<OwnedFd> {
        let mut unclaimed = lock(&self.0);
        let place = unclaimed.iter().position(|one| one.number == number && one.kind == kind)?;
        unclaimed.remove(place).map(|one| one.socket)
    }

    /// Receives bytes, and keeps the socket that came with them. Says how many, and whether that was all
    /// there was: what carries something beside it is read alone.
    pub(crate) fn receive(
        &self,
        from: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> rustix::io::Result<(usize, bool)> {
        let room = buffer.len();
        // The kernel rounds up: there is room for a second one, which is seen and refused. More are none.
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

/// A descriptor with its number, if it is a socket that may be handed over.
fn check(descriptor: OwnedFd) -> Option<Handed> {
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
            Kind::Tcp
        }
        AddressFamily::UNIX
            if is_unnamed(&peer) && is_unnamed(&rustix::net::getsockname(&descriptor).ok()?) =>
        {
            Kind::Pair
        }
        _ => return None,
    };
    rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC).ok()?;
    rustix::io::ioctl_fionbio(&descriptor, true).ok()?;
    Some(Handed { number: socket_number(&descriptor).ok()?, kind, socket: descriptor })
}

/// Whether an address is a family and nothing else.
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

    /// Sends descriptors in one message, as a hostile agent may; gives what the host keeps of them.
    fn sent(descriptors: &[BorrowedFd<'_>]) -> Vec<Handed> {
        let (agent, host) = UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(beside.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        rustix::net::sendmsg(&agent, &[IoSlice::new(b"abc")], &mut beside, NONE).unwrap();
        let (inbox, mut bytes) = (Inbox::default(), [0; 8]);
        assert_eq!(inbox.receive(host.as_fd(), &mut bytes).unwrap().0, 3);
        assert_eq!(&bytes[..3], b"abc");
        lock(&inbox.0).drain(..).collect()
    }

    #[test]
    fn one_connected_tcp_socket_is_taken_and_made_to_never_block() {
        let (mut near, far) = connected();
        let mut kept = sent(&[far.as_fd()]);
        let Handed { number, kind, socket } = kept.pop().unwrap();
        assert!(kept.is_empty());
        assert_eq!((number, kind), (socket_number(&far).unwrap(), Kind::Tcp));
        assert!(rustix::io::fcntl_getfd(&socket).unwrap().contains(FdFlags::CLOEXEC));
        assert!(rustix::fs::fcntl_getfl(&socket).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        drop((far, socket));
        assert_eq!(near.read(&mut [0]).unwrap(), 0, "nobody else has it");
    }

    /// A name of the abstract kind that no other test has.
    fn name() -> String {
        format!("isle-handed-{}-{:?}", std::process::id(), std::thread::current().id())
    }

    #[test]
    fn an_end_of_a_pair_is_taken_by_whoever_expects_one_only() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut kept = sent(&[far.as_fd()]);
        let handed = kept.pop().unwrap();
        assert_eq!((handed.number, handed.kind), (socket_number(&far).unwrap(), Kind::Pair));
        let (number, inbox) = (handed.number, Inbox::default());
        lock(&inbox.0).push_back(handed);
        assert!(inbox.take(number, Kind::Tcp).is_none());
        assert!(inbox.take(number, Kind::Pair).is_some());
        drop(near);
    }

    #[test]
    fn whatever_is_not_one_connected_tcp_socket_is_closed() {
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
        // Nothing of it is kept anywhere: without its writers a pipe ends.
        drop(writer);
        assert_eq!(std::fs::File::from(pipe).read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn sockets_nobody_asks_for_are_bounded() {
        let (agent, host) = UnixStream::pair().unwrap();
        let (outbox, inbox) = (Outbox::default(), Inbox::default());
        let (_near, far) = connected();
        for _ in 0..MOST_UNCLAIMED + 5 {
            outbox.put(far.try_clone().unwrap().into());
            assert_eq!(outbox.send(agent.as_fd(), &[IoSlice::new(b"x")], NONE).unwrap(), 1);
            assert_eq!(inbox.receive(host.as_fd(), &mut [0; 8]).unwrap().0, 1);
        }
        assert_eq!(lock(&inbox.0).len(), MOST_UNCLAIMED);
    }

    #[test]
    fn what_waits_when_nobody_takes_it_any_more_is_closed_and_so_is_what_comes_later() {
        use std::io::Read;
        let outbox = Outbox::default();
        let kept_by_somebody = outbox.clone();
        for late in [false, true] {
            let (mut near, far) = UnixStream::pair().unwrap();
            if late {
                kept_by_somebody.put(far.into());
            } else {
                outbox.put(far.into());
                outbox.close();
            }
            assert_eq!(near.read(&mut [0]).unwrap(), 0, "late: {late}");
        }
    }

    #[test]
    fn each_socket_arrives_no_later_than_the_bytes_that_speak_of_it() {
        let (agent, host) = UnixStream::pair().unwrap();
        let (outbox, inbox) = (Outbox::default(), Inbox::default());
        let pairs: Vec<_> = (0..5).map(|_| connected()).collect();
        let numbers: Vec<u64> = pairs.iter().map(|(_, far)| socket_number(far).unwrap()).collect();
        for (_, far) in &pairs {
            outbox.put(far.try_clone().unwrap().into());
        }
        let (text, mut sent) = (b"the bytes that speak of all five", 0);
        while sent < text.len() {
            let parts = [IoSlice::new(&[]), IoSlice::new(&text[sent..])];
            sent += outbox.send(agent.as_fd(), &parts, NONE).unwrap();
        }
        let (mut heard, mut buffer) = (Vec::new(), [0; 64]);
        while heard.len() < text.len() {
            let (count, _) = inbox.receive(host.as_fd(), &mut buffer).unwrap();
            heard.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(heard, text);
        for number in numbers {
            assert!(inbox.take(number, Kind::Tcp).is_some());
            assert!(inbox.take(number, Kind::Tcp).is_none(), "only once");
        }
    }
}
