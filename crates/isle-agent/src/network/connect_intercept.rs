//! Intercepting `connect` calls to addresses the agent does not listen on yet: an address instead of a
//! name, or another port of a name. The host decides about each. For a granted one the agent listens from
//! then on and connects the program's own socket; a denied one fails at once and is recorded. This is not
//! what enforces the policy: there is no route to any address, whatever a program does to its memory
//! meanwhile.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use isle_setup::network::is_for_names;
use isle_setup::seccomp::{Listener, Notification};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tokio::io::unix::AsyncFd;

use super::sockaddr::read_address;
use super::{attribution, connect, idle_dns};
use crate::helper_process;
use crate::mode::NetworkAccess;
use crate::serve::Shared;

/// Maximum number of programs that wait for a decision.
const MAX_INTERCEPTED: usize = 256;
/// Timeout of a connection within the sandbox: the listener may be slow to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a program wants to connect to.
struct Target {
    /// A name that was looked up, or an address as text.
    host: String,
    port: u16,
    /// Whether it is a name, whose address is local.
    named: bool,
}

/// How a call is answered.
enum Verdict {
    /// The kernel executes it.
    Proceed,
    Connected,
    /// It fails with this error number.
    Failed(i32),
}

/// Intercepts a `connect` call. Returns whether it was one: then it is, or will be, answered.
pub(crate) fn intercept(
    agent: &Shared,
    listener: &Rc<AsyncFd<Listener>>,
    notification: Notification,
) -> bool {
    if libc::c_long::from(notification.number) != libc::SYS_connect
        || agent.mode.network != NetworkAccess::OwnNamespace
    {
        return false;
    }
    // Each one that waits needs a descriptor; for others the kernel reports that there is no route.
    let target = target(agent, &notification)
        .filter(|_| agent.network.intercepted.get() < MAX_INTERCEPTED && helper_process::has_room());
    // The program may have been killed meanwhile.
    let Some(target) = target else {
        listener.get_ref().proceed(notification).ok();
        return true;
    };
    let (agent, listener) = (agent.clone(), Rc::clone(listener));
    agent.network.intercepted.update(|count| count + 1);
    tokio::task::spawn_local(async move {
        let verdict = decide(&agent, listener.get_ref(), &notification, target).await;
        agent.network.intercepted.update(|count| count - 1);
        match verdict {
            Verdict::Proceed => listener.get_ref().proceed(notification).ok(),
            Verdict::Connected => listener.get_ref().accept(notification).ok(),
            Verdict::Failed(errno) => listener.get_ref().refuse(notification, errno).ok(),
        }
    });
    true
}

/// The destination of the call, if the host has to decide about it: not a local one, and not one the agent
/// listens on already, about which the host decides when it is connected.
fn target(agent: &Shared, notification: &Notification) -> Option<Target> {
    let address = read_address(notification).ok()?;
    let (ip, port) = (address.ip().to_canonical(), address.port());
    if ip.is_loopback() || ip.is_unspecified() || port == 0 {
        return None;
    }
    match ip {
        IpAddr::V4(four) if is_for_names(four) => {
            let (host, listens) = agent.network.serving()?.names.borrow().name_at(four, port)?;
            (!listens).then_some(Target { host, port, named: true })
        }
        ip => Some(Target { host: ip.to_string(), port, named: false }),
    }
}

async fn decide(agent: &Shared, listener: &Listener, notification: &Notification, target: Target) -> Verdict {
    let Some(socket) = socket_of(notification) else { return Verdict::Proceed };
    let kind = sockopt::socket_type(&socket);
    // Not kept while the host decides, and not closed here: the program could make that block.
    helper_process::close([socket]);
    let Ok(kind) = kind else { return Verdict::Proceed };
    if !listener.is_waiting(notification) || ![SocketType::STREAM, SocketType::DGRAM].contains(&kind) {
        return Verdict::Proceed;
    }
    let Some(serving) = idle_dns::served(agent).await else { return Verdict::Proceed };
    let datagram = kind == SocketType::DGRAM;
    let run = attribution::of_process(agent, notification.pid);
    let asked = serving.ask_connection(&target.host, target.port, datagram, run).await;
    let Some(asked) = asked else { return Verdict::Proceed };
    let Ok(granted) = asked.await else { return Verdict::Proceed };
    match (granted && !datagram, target.named) {
        (false, true) => Verdict::Failed(libc::ECONNREFUSED),
        (false, false) => Verdict::Failed(libc::ENETUNREACH),
        (true, named) => {
            let served = serving.names.borrow_mut().serve(&target.host, &[target.port]);
            let listening = served.and_then(|address| serving.names.borrow().name_at(address, target.port));
            drop(serving);
            match (served, listening) {
                (Some(_), _) if named => Verdict::Proceed,
                (Some(address), Some((_, true))) => {
                    connect_program(listener, notification, (address, target.port).into()).await
                }
                // A program of the sandbox has bound the port on every address.
                _ => Verdict::Failed(libc::ECONNREFUSED),
            }
        }
    }
}

/// A copy of the socket that is the first argument of a call.
fn socket_of(notification: &Notification) -> Option<OwnedFd> {
    let thread = i32::try_from(notification.pid).ok().and_then(Pid::from_raw)?;
    let process = pidfd_open(thread, PidfdFlags::empty())
        .ok()
        .or_else(|| pidfd_open(leader(thread)?, PidfdFlags::empty()).ok())?;
    pidfd_getfd(process, notification.int(0), PidfdGetfdFlags::empty()).ok()
}

/// The PID of a thread's process.
fn leader(thread: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    Pid::from_raw(line.trim().parse().ok()?)
}

/// Connects a program's socket to the agent's listener, and waits for it if the program would. In a helper
/// process: a program can make a shared socket blocking at any time.
async fn connect_program(listener: &Listener, notification: &Notification, address: SocketAddr) -> Verdict {
    let work = || {
        let socket = socket_of(notification).ok_or(io::Error::from_raw_os_error(libc::EBADF))?;
        if !listener.is_waiting(notification) {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        connect_shared(&socket, address).map(|()| 0)
    };
    match helper_process::run(&[listener.as_raw_fd()], Some(CONNECT_TIMEOUT), work).await {
        Ok(_) => Verdict::Connected,
        Err(error) => Verdict::Failed(error.raw_os_error().unwrap_or(libc::ETIMEDOUT)),
    }
}

fn connect_shared(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let address = match (sockopt::socket_domain(socket)?, address) {
        (AddressFamily::INET6, SocketAddr::V4(four)) => {
            SocketAddr::from((four.ip().to_ipv6_mapped(), four.port()))
        }
        (_, address) => address,
    };
    let flags = fcntl_getfl(socket)?;
    if flags.contains(OFlags::NONBLOCK) {
        return connect::begin(socket.as_fd(), address);
    }
    fcntl_setfl(socket, flags | OFlags::NONBLOCK)?;
    let begun = connect::begin(socket.as_fd(), address);
    fcntl_setfl(socket, flags)?;
    match begun {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            poll(&mut [PollFd::new(socket, PollFlags::OUT)], None)?;
            Ok(sockopt::socket_error(socket)??)
        }
        begun => begun,
    }
}
