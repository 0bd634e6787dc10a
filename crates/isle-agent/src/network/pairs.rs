//! The gate where the host's network is in reach, so that nobody may have a socket of it. Whoever asks for
//! one for TCP gets one end of a pair, and when it is connected to the proxy, the other end goes to the host,
//! where the proxy is. No address but the proxy's is ever connected to, and none by the kernel. What waits to
//! be connected is bounded.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use isle_linux::setup::seccomp::{Inherited, Listener, Notification};
use isle_wire::{
    FrameError, GateEvent, GatePassed, Outbox, PROXY_PORT, Stream, read_frame, socket_number, write_message,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::sync::mpsc;

use super::address::{read_address, socket_behind};
use super::{DEPTH, Told, tell};
use crate::serve::Shared;

/// Sockets that were given and are not connected.
const MOST_KEPT: usize = 256;
/// The part of a socket's type that is not a flag.
const SOCKET_KIND: i32 = 0xf;

/// What there is while a gate is served.
pub(super) struct Pairs {
    events: mpsc::Sender<Told>,
    /// The ends that are kept, by the number of the end that was given: the same to whoever holds it.
    kept: HashMap<u64, OwnedFd>,
}

/// How a call is answered.
enum Answer {
    /// With what it asked for.
    Hand(u64, OwnedFd, Inherited),
    /// It worked.
    Done,
    /// It did not.
    Refuse(i32),
}

/// Serves the gate whose stream this is, until it ends. Then what was given and not connected is nobody's.
pub(super) async fn serve(mut stream: Stream, agent: Shared, outbox: Outbox) -> Result<(), FrameError> {
    let turn = agent.network.begin();
    write_message(&mut stream, &GateEvent::Ready).await?;
    let (events, outgoing) = mpsc::channel(DEPTH);
    agent.network.state.borrow_mut().pairs = Some(Pairs { events, kept: HashMap::new() });
    let (mut from_host, to_host) = tokio::io::split(stream);
    let hear = async {
        // There are no questions here, so there is nothing to be told.
        while read_frame(&mut from_host).await?.is_some() {}
        Ok(())
    };
    let ended = tokio::select! { ended = tell(to_host, outgoing, outbox) => ended, ended = hear => ended };
    if agent.network.is_last(turn) {
        agent.network.state.borrow_mut().pairs = None;
    }
    ended
}

/// Answers a program that asks for a socket, or connects one. Says whether it was: what is not is refused as
/// all refused calls are.
pub(crate) fn answer(agent: &Shared, listener: &Listener, notification: Notification) -> bool {
    let mut state = agent.network.state.borrow_mut();
    let pairs = state.pairs.as_mut();
    let answer = match (libc::c_long::from(notification.number), pairs) {
        (libc::SYS_socket, None) => Some(Answer::Refuse(libc::EAFNOSUPPORT)),
        (libc::SYS_socket, Some(pairs)) => Some(pairs.socket(&notification)),
        (libc::SYS_connect, Some(pairs)) => pairs.connect(listener, &notification),
        _ => None,
    };
    // Whoever was killed meanwhile waits for no answer.
    match answer {
        None => return false,
        Some(Answer::Done) => listener.accept(notification).ok(),
        Some(Answer::Refuse(errno)) => listener.refuse(notification, errno).ok(),
        Some(Answer::Hand(number, end, inherited)) => {
            let handed = listener.hand(notification, end.as_fd(), inherited);
            handed.err().and_then(|error| {
                // It has as many as it may have, or is gone.
                state.pairs.as_mut().map(|pairs| pairs.kept.remove(&number));
                listener.refuse(notification, error.raw_os_error().unwrap_or(libc::EMFILE)).ok()
            })
        }
    };
    true
}

impl Pairs {
    fn socket(&mut self, notification: &Notification) -> Answer {
        let flags = notification.int(1) & !SOCKET_KIND;
        if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
            return Answer::Refuse(libc::EINVAL);
        }
        if self.kept.len() >= MOST_KEPT {
            self.kept.retain(|_, end| !has_hung_up(end));
        }
        if self.kept.len() >= MOST_KEPT {
            return Answer::Refuse(libc::EMFILE);
        }
        match self.pair(flags & libc::SOCK_NONBLOCK != 0) {
            Ok((number, end)) => {
                let inherited = if flags & libc::SOCK_CLOEXEC == 0 { Inherited::Yes } else { Inherited::No };
                Answer::Hand(number, end, inherited)
            }
            Err(error) => Answer::Refuse(error.raw_os_error().unwrap_or(libc::ENFILE)),
        }
    }

    /// A pair, one end of which is kept.
    fn pair(&mut self, never_blocks: bool) -> std::io::Result<(u64, OwnedFd)> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&theirs, never_blocks)?;
        let number = rustix::fs::fstat(&theirs)?.st_ino;
        self.kept.insert(number, ours);
        Ok((number, theirs))
    }

    /// `None` where it is no socket of ours to answer for.
    fn connect(&mut self, listener: &Listener, notification: &Notification) -> Option<Answer> {
        let number = socket_behind(notification)?;
        // Read once: what it is decided by is what it is.
        let address = read_address(notification);
        if !listener.is_waiting(notification) {
            return Some(Answer::Refuse(libc::EINTR));
        }
        let address = match address {
            Ok(address) => address,
            Err(errno) => return Some(Answer::Refuse(errno)),
        };
        // All sockets there are here are one end of something.
        if !self.kept.contains_key(&number) {
            return Some(Answer::Refuse(libc::EISCONN));
        }
        if !is_proxy(address) {
            let passed =
                GatePassed { address: address.ip().to_canonical().to_string(), port: address.port() };
            // A program that tries it so often that this is full has been told of before.
            self.events.try_send((GateEvent::Passed(passed), None)).ok();
            return Some(Answer::Refuse(libc::ECONNREFUSED));
        }
        let end = self.kept.remove(&number)?;
        let told = socket_number(&end)
            .is_ok_and(|number| self.events.try_send((GateEvent::Proxied(number), Some(end))).is_ok());
        Some(if told { Answer::Done } else { Answer::Refuse(libc::ECONNREFUSED) })
    }
}

fn is_proxy(address: SocketAddr) -> bool {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    loopback.contains(&address.ip().to_canonical()) && address.port() == PROXY_PORT
}

/// Whether nobody has the other end any more.
fn has_hung_up(end: &OwnedFd) -> bool {
    let mut look = [PollFd::new(end, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut look, Some(&at_once)).is_ok() && look[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_has_three_spellings_and_everything_else_is_not_it() {
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
    fn an_end_is_kept_until_the_other_is_gone() {
        let (events, _told) = mpsc::channel(1);
        let mut pairs = Pairs { events, kept: HashMap::new() };
        let (number, end) = pairs.pair(true).unwrap();
        assert!(rustix::fs::fcntl_getfl(&end).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        assert!(!has_hung_up(&pairs.kept[&number]));
        drop(end);
        assert!(has_hung_up(&pairs.kept[&number]));
    }
}
