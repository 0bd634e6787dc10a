//! The gate where programs share the host's network namespace and must not create internet sockets. A call
//! for a TCP socket is answered with one end of a socket pair, and when the program connects it to the
//! proxy's address, the other end is sent to the host, where the proxy is. No other address is connected
//! to, and none by the kernel. The number of unconnected pairs is bounded.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use isle_setup::seccomp::{Inherited, Listener, Notification};
use isle_wire::{
    FrameError, GateEvent, GatePassed, PROXY_PORT, Stream, read_frame, socket_cookie, write_message,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::sync::mpsc;

use super::sockaddr::{read_address, socket_behind};
use super::{EVENT_QUEUE, Event, HandOver, attribution, send_events};
use crate::serve::Shared;

/// Maximum number of pairs that are not connected.
const MAX_UNCONNECTED: usize = 256;
/// The part of a socket's type that is not a flag.
const SOCKET_KIND: i32 = 0xf;

/// The pairs while a gate is served.
pub(super) struct SocketPairs {
    events: mpsc::Sender<Event>,
    /// The agent's ends of unconnected pairs, by the inode of the program's end.
    unconnected: HashMap<u64, OwnedFd>,
}

/// How a call is answered.
enum Answer {
    /// With a descriptor.
    Descriptor(u64, OwnedFd, Inherited),
    /// With success.
    Success,
    /// With an error number.
    Error(i32),
}

/// Serves the gate whose stream this is, until it ends. Unconnected pairs end with it.
pub(super) async fn serve(mut stream: Stream, agent: Shared, hand_over: HandOver) -> Result<(), FrameError> {
    let gate = agent.network.begin();
    write_message(&mut stream, &GateEvent::Ready).await?;
    let (events, outgoing) = mpsc::channel(EVENT_QUEUE);
    agent.network.state.borrow_mut().pairs = Some(SocketPairs { events, unconnected: HashMap::new() });
    let (mut from_host, to_host) = tokio::io::split(stream);
    let receive = async {
        // There are no queries in this mode, so the host has nothing to answer.
        while read_frame(&mut from_host).await?.is_some() {}
        Ok(())
    };
    let ended = tokio::select! { ended = send_events(to_host, outgoing, &agent, hand_over) => ended, ended = receive => ended };
    if agent.network.is_last(gate) {
        agent.network.state.borrow_mut().pairs = None;
        agent.network.waiting.clear();
    }
    ended
}

/// Answers a `socket` or `connect` call. Returns whether it was one: others are denied as usual.
pub(crate) fn answer(agent: &Shared, listener: &Listener, notification: Notification) -> bool {
    let mut state = agent.network.state.borrow_mut();
    let pairs = state.pairs.as_mut();
    let answer = match (libc::c_long::from(notification.number), pairs) {
        (libc::SYS_socket, None) => Some(Answer::Error(libc::EAFNOSUPPORT)),
        (libc::SYS_socket, Some(pairs)) => Some(pairs.socket(&notification)),
        (libc::SYS_connect, Some(pairs)) => pairs.connect(agent, listener, &notification),
        _ => None,
    };
    // The program may have been killed meanwhile.
    match answer {
        None => return false,
        Some(Answer::Success) => listener.accept(notification).ok(),
        Some(Answer::Error(errno)) => listener.refuse(notification, errno).ok(),
        Some(Answer::Descriptor(number, end, inherited)) => {
            let installed = listener.hand(notification, end.as_fd(), inherited);
            installed.err().and_then(|error| {
                // The program has too many descriptors, or has exited.
                state.pairs.as_mut().map(|pairs| pairs.unconnected.remove(&number));
                listener.refuse(notification, error.raw_os_error().unwrap_or(libc::EMFILE)).ok()
            })
        }
    };
    true
}

impl SocketPairs {
    fn socket(&mut self, notification: &Notification) -> Answer {
        let flags = notification.int(1) & !SOCKET_KIND;
        if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
            return Answer::Error(libc::EINVAL);
        }
        if self.unconnected.len() >= MAX_UNCONNECTED {
            self.unconnected.retain(|_, end| !is_closed(end));
        }
        if self.unconnected.len() >= MAX_UNCONNECTED {
            return Answer::Error(libc::EMFILE);
        }
        match self.pair(flags & libc::SOCK_NONBLOCK != 0) {
            Ok((number, end)) => {
                let inherited = if flags & libc::SOCK_CLOEXEC == 0 { Inherited::Yes } else { Inherited::No };
                Answer::Descriptor(number, end, inherited)
            }
            Err(error) => Answer::Error(error.raw_os_error().unwrap_or(libc::ENFILE)),
        }
    }

    /// Makes a pair and keeps one end.
    fn pair(&mut self, never_blocks: bool) -> std::io::Result<(u64, OwnedFd)> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&theirs, never_blocks)?;
        let number = rustix::fs::fstat(&theirs)?.st_ino;
        self.unconnected.insert(number, ours);
        Ok((number, theirs))
    }

    /// `None` when the descriptor is not a socket.
    fn connect(
        &mut self,
        agent: &Shared,
        listener: &Listener,
        notification: &Notification,
    ) -> Option<Answer> {
        let number = socket_behind(notification)?;
        // Read once, so that what is checked is what is used.
        let address = read_address(notification);
        if !listener.is_waiting(notification) {
            return Some(Answer::Error(libc::EINTR));
        }
        let address = match address {
            Ok(address) => address,
            Err(errno) => return Some(Answer::Error(errno)),
        };
        // Every socket of a program is one end of a pair; this one is connected already.
        if !self.unconnected.contains_key(&number) {
            return Some(Answer::Error(libc::EISCONN));
        }
        if !is_proxy(address) {
            let run = attribution::of_process(agent, notification.pid);
            let passed =
                GatePassed { address: address.ip().to_canonical().to_string(), port: address.port(), run };
            // When the queue is full, the program was reported before.
            self.events.try_send((GateEvent::Passed(passed), None)).ok();
            return Some(Answer::Error(libc::ECONNREFUSED));
        }
        let end = self.unconnected.remove(&number)?;
        let run = attribution::of_process(agent, notification.pid);
        let sent = socket_cookie(&end).is_ok_and(|number| {
            self.events.try_send((GateEvent::Proxied(number, run), Some((number, end)))).is_ok()
        });
        Some(if sent { Answer::Success } else { Answer::Error(libc::ECONNREFUSED) })
    }
}

fn is_proxy(address: SocketAddr) -> bool {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    loopback.contains(&address.ip().to_canonical()) && address.port() == PROXY_PORT
}

/// Whether the other end is closed.
fn is_closed(end: &OwnedFd) -> bool {
    let mut look = [PollFd::new(end, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut look, Some(&at_once)).is_ok() && look[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_has_three_addresses_and_no_others() {
        let port = PROXY_PORT;
        for proxy in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"] {
            assert!(is_proxy(format!("{proxy}:{port}").parse().unwrap()), "{proxy}");
        }
        assert!(!is_proxy(SocketAddr::from((Ipv4Addr::LOCALHOST, port + 1))));
        for other in
            ["127.0.0.2", "0.0.0.0", "10.0.0.1", "[::]", "[::127.0.0.1]", "[::ffff:127.0.0.2]", "[fe80::1]"]
        {
            assert!(!is_proxy(format!("{other}:{port}").parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn an_end_is_kept_until_the_other_is_closed() {
        let (events, _queued) = mpsc::channel(1);
        let mut pairs = SocketPairs { events, unconnected: HashMap::new() };
        let (number, end) = pairs.pair(true).unwrap();
        assert!(rustix::fs::fcntl_getfl(&end).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        assert!(!is_closed(&pairs.unconnected[&number]));
        drop(end);
        assert!(is_closed(&pairs.unconnected[&number]));
    }
}
