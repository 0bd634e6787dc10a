//! Programs that connect to where nothing listens for the gate yet: an address instead of a name, or another
//! port of a name. Each is put to the host. What it grants is listened for from then on, and the program's
//! own socket is connected there; what it denies is refused at once, and on record. Nothing depends on it
//! that a program could gain by: there is no route to any address, whatever it makes of its memory meanwhile.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use isle_linux::setup::network::is_for_names;
use isle_linux::setup::seccomp::{Listener, Notification};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tokio::io::unix::AsyncFd;

use super::address::read_address;
use super::{connect, first};
use crate::place;
use crate::serve::Shared;

/// Programs that wait for an answer.
const MOST: usize = 256;

/// Where a program wants to connect to, and nothing listens.
struct Target {
    /// A name that was looked up, or an address as text.
    host: String,
    port: u16,
    /// Whether it is a name, whose address is this machine's.
    named: bool,
}

/// What becomes of a call.
enum Fate {
    /// The kernel does what it was asked for.
    Proceed,
    Connected,
    Refused(i32),
}

/// Looks where a program connects to. Says whether the call was one to connect: then it is, or will be,
/// answered.
pub(crate) fn attempt(agent: &Shared, listener: &Rc<AsyncFd<Listener>>, notification: Notification) -> bool {
    if libc::c_long::from(notification.number) != libc::SYS_connect || place::private().is_some() {
        return false;
    }
    // Each that waits is a descriptor; more find what the kernel says, which is that there is no route.
    let target = target(agent, &notification).filter(|_| agent.network.attempting.get() < MOST);
    // Whoever was killed meanwhile waits for no answer.
    let Some(target) = target else {
        listener.get_ref().proceed(notification).ok();
        return true;
    };
    let (agent, listener) = (agent.clone(), Rc::clone(listener));
    agent.network.attempting.update(|count| count + 1);
    tokio::task::spawn_local(async move {
        let fate = decide(&agent, listener.get_ref(), &notification, target).await;
        agent.network.attempting.update(|count| count - 1);
        match fate {
            Fate::Proceed => listener.get_ref().proceed(notification).ok(),
            Fate::Connected => listener.get_ref().accept(notification).ok(),
            Fate::Refused(errno) => listener.get_ref().refuse(notification, errno).ok(),
        }
    });
    true
}

/// Where the call leads, if it is for the host to decide: not what stays inside, and not what is listened for
/// already, which the host decides when it is connected.
fn target(agent: &Shared, notification: &Notification) -> Option<Target> {
    let address = read_address(notification).ok()?;
    let (ip, port) = (address.ip().to_canonical(), address.port());
    if ip.is_loopback() || ip.is_unspecified() || port == 0 {
        return None;
    }
    match ip {
        IpAddr::V4(four) if is_for_names(four) => {
            let (host, listens) = agent.network.serving()?.names.borrow().whose(four, port)?;
            (!listens).then_some(Target { host, port, named: true })
        }
        ip => Some(Target { host: ip.to_string(), port, named: false }),
    }
}

async fn decide(agent: &Shared, listener: &Listener, notification: &Notification, target: Target) -> Fate {
    let Some(socket) = taken(notification) else { return Fate::Proceed };
    let Ok(kind) = sockopt::socket_type(&socket) else { return Fate::Proceed };
    if !listener.is_waiting(notification) || ![SocketType::STREAM, SocketType::DGRAM].contains(&kind) {
        return Fate::Proceed;
    }
    let Some(serving) = first::served(agent).await else { return Fate::Proceed };
    let datagram = kind == SocketType::DGRAM;
    let asked = serving.ask_connection(&target.host, target.port, datagram).await;
    let Some(asked) = asked else { return Fate::Proceed };
    let Ok(granted) = asked.await else { return Fate::Proceed };
    match (granted && !datagram, target.named) {
        (false, true) => Fate::Refused(libc::ECONNREFUSED),
        (false, false) => Fate::Refused(libc::ENETUNREACH),
        (true, named) => {
            let served = serving.names.borrow_mut().serve(&target.host, &[target.port]);
            let whose = served.and_then(|address| serving.names.borrow().whose(address, target.port));
            drop(serving);
            match (served, whose) {
                (Some(_), _) if named => Fate::Proceed,
                (Some(address), Some((_, true))) => lead(socket, (address, target.port).into()).await,
                // A program of the sandbox holds the port on every address.
                _ => Fate::Refused(libc::ECONNREFUSED),
            }
        }
    }
}

/// The socket that a call's first argument is to the one who makes it.
fn taken(notification: &Notification) -> Option<OwnedFd> {
    let thread = i32::try_from(notification.pid).ok().and_then(Pid::from_raw)?;
    let process = pidfd_open(thread, PidfdFlags::empty())
        .ok()
        .or_else(|| pidfd_open(leader(thread)?, PidfdFlags::empty()).ok())?;
    pidfd_getfd(process, notification.int(0), PidfdGetfdFlags::empty()).ok()
}

/// The first thread of a thread's process.
fn leader(thread: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    Pid::from_raw(line.trim().parse().ok()?)
}

/// Connects a program's socket to where its target is listened for, and waits for it if the program would.
async fn lead(socket: OwnedFd, address: SocketAddr) -> Fate {
    let led = async {
        let address = match (sockopt::socket_domain(&socket)?, address) {
            (AddressFamily::INET6, SocketAddr::V4(four)) => {
                SocketAddr::from((four.ip().to_ipv6_mapped(), four.port()))
            }
            (_, address) => address,
        };
        let flags = fcntl_getfl(&socket)?;
        if flags.contains(OFlags::NONBLOCK) {
            return connect::begin(socket.as_fd(), address);
        }
        // Never does the agent wait for a connection: nobody would accept it.
        fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
        let begun = connect::begin(socket.as_fd(), address);
        fcntl_setfl(&socket, flags)?;
        match begun {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                connect::finish(socket).await.map(drop)
            }
            begun => begun,
        }
    };
    match led.await {
        Ok(()) => Fate::Connected,
        Err(error) => Fate::Refused(error.raw_os_error().unwrap_or(libc::ETIMEDOUT)),
    }
}
