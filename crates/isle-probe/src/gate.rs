//! Attempts to bypass the network gate of a sandbox: unusual forms of addresses, the stream between the
//! sandbox and its daemon, own routes and addresses.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use crate::Attack;
use crate::kernel::{descriptor, errno_name};
use crate::network::says_secret;
use crate::outcome::{Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("net.host_forms", "reach the host's loopback by unusual forms of its address", host_forms),
    Attack::new("net.unix_listed", "connect to every socket the kernel lists", unix_listed),
    Attack::new("net.agent_stream", "take the stream to the daemon from another process", agent_stream),
    Attack::new("net.routes", "add a route", routes),
    Attack::new("net.transparent", "use an address of another host", transparent),
    Attack::new("net.tun", "make an interface that this program answers", tun),
];

const TIMEOUT: Duration = Duration::from_secs(2);

/// In all numeric forms that C libraries parse, and as names.
fn host_forms(target: &Target) -> Tried {
    let port: u16 = target.number("tcp")?;
    let forms = [
        "2130706433",
        "0x7f000001",
        "017700000001",
        "127.1",
        "127.0.1",
        "0x7f.0.0.1",
        "0177.0.0.01",
        "127.255.255.254",
        "localhost",
        "localhost.",
        "::ffff:7f00:1",
        "0:0:0:0:0:ffff:127.0.0.1",
    ];
    let mut tried = Vec::new();
    for form in forms {
        let stream = (form, port).to_socket_addrs().and_then(|found| {
            let mut last = io::Error::from(io::ErrorKind::NotFound);
            for address in found {
                match TcpStream::connect_timeout(&address, TIMEOUT) {
                    Ok(stream) => {
                        stream.set_read_timeout(Some(TIMEOUT)).ok();
                        return Ok(stream);
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        });
        tried.push(says_secret(target, form, stream)?);
    }
    Ok(Outcome::any(tried))
}

/// The kernel lists the sockets of the network namespace, those of the first process among them.
fn unix_listed(_: &Target) -> Tried {
    const LISTENING: &str = "00010000";
    let list = match std::fs::read_to_string("/proc/net/unix") {
        Ok(list) => list,
        Err(error) => return Ok(Outcome::contained(format_args!("/proc/net/unix: {}", errno_name(&error)))),
    };
    let listening = list.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(3) == Some(&LISTENING)).then(|| fields.get(7).copied().unwrap_or_default())
    });
    Ok(Outcome::any(listening.filter(|name| !name.is_empty()).map(|name| {
        let connected = match name.strip_prefix('@') {
            Some(name) => {
                SocketAddr::from_abstract_name(name).and_then(|address| UnixStream::connect_addr(&address))
            }
            None => UnixStream::connect(name),
        };
        Outcome::of(format_args!("connecting to {name}"), &connected)
    })))
}

/// A process with that stream could impersonate the daemon or the agent.
fn agent_stream(_: &Target) -> Tried {
    // SAFETY: cannot fail and takes nothing.
    let program = unsafe { libc::getppid() };
    let above = crate::privileges::parent_of_program();
    let tried = [above, 1].into_iter().filter(|pid| *pid > 0 && *pid != program);
    Ok(Outcome::any(tried.map(descriptors_of)))
}

/// The first descriptors of a process, taken or looked at.
fn descriptors_of(pid: i32) -> Outcome {
    const MOST: i32 = 64;
    let process = descriptor(kernel_call!(libc::SYS_pidfd_open, pid, 0));
    let take = |number: i32| -> io::Result<OwnedFd> {
        let process = process.as_ref().map_err(|error| io::Error::from(error.kind()))?;
        descriptor(kernel_call!(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0))
    };
    let look = |number: i32| std::fs::read_link(format!("/proc/{pid}/fd/{number}"));
    Outcome::any((0..MOST).flat_map(|number| {
        [
            Outcome::of(format_args!("pidfd_getfd {number} of {pid}"), &take(number)),
            Outcome::of(format_args!("/proc/{pid}/fd/{number}"), &look(number)),
        ]
    }))
}

/// A message that is too short: with the permission to change routes the error is another one.
fn routes(_: &Target) -> Tried {
    let raw = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    let socket = match descriptor(library_call!(socket(libc::AF_NETLINK, raw, libc::NETLINK_ROUTE))) {
        Ok(socket) => socket,
        Err(error) => return Ok(Outcome::contained(format_args!("socket: {}", errno_name(&error)))),
    };
    let asked = [libc::RTM_NEWROUTE, libc::RTM_NEWADDR, libc::RTM_NEWLINK].map(|kind| {
        let refused = ask(&socket, kind)
            .and_then(|error| if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) });
        Outcome::of_right(format_args!("message {kind}"), &refused)
    });
    Ok(Outcome::any(asked))
}

/// Sends a message that names a family and nothing else; gives the error number of the answer.
fn ask(socket: &OwnedFd, kind: u16) -> io::Result<i32> {
    const LENGTH: u32 = 20;
    const INTERNET: [u8; 4] = [2, 0, 0, 0];
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_ACK).unwrap_or_default();
    let mut message = LENGTH.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(INTERNET);
    let (number, nobody) = (socket.as_raw_fd(), 0usize);
    kernel_call!(libc::SYS_sendto, number, message.as_ptr(), message.len(), 0, nobody, 0)?;
    let mut answer = [0u8; 1024];
    kernel_call!(libc::SYS_recvfrom, number, answer.as_mut_ptr(), answer.len(), 0, nobody, nobody)?;
    Ok(i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]))
}

fn transparent(_: &Target) -> Tried {
    let stream = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let socket = match descriptor(library_call!(socket(libc::AF_INET, stream, 0))) {
        Ok(socket) => socket,
        Err(error) => return Ok(Outcome::contained(format_args!("socket: {}", errno_name(&error)))),
    };
    let on: libc::c_int = 1;
    let size = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or_default();
    let value = (&raw const on).cast();
    let number = socket.as_raw_fd();
    let set = library_call!(setsockopt(number, libc::SOL_IP, libc::IP_TRANSPARENT, value, size));
    // Only what can be read again was really set.
    let (mut found, mut length): (libc::c_int, _) = (0, size);
    let set = set.and_then(|_| {
        let found = (&raw mut found).cast();
        library_call!(getsockopt(number, libc::SOL_IP, libc::IP_TRANSPARENT, found, &raw mut length))
    });
    Ok(Outcome::of(format_args!("IP_TRANSPARENT is {found}"), &set))
}

/// The interface is gone with its descriptor.
fn tun(_: &Target) -> Tried {
    const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;
    let device = match std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        Ok(device) => device,
        Err(error) => return Ok(Outcome::contained(format_args!("/dev/net/tun: {}", errno_name(&error)))),
    };
    // SAFETY: plain data for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_TUN | libc::IFF_NO_PI).unwrap_or(1);
    let made = library_call!(ioctl(device.as_raw_fd(), TUNSETIFF, &raw mut request));
    Ok(Outcome::of("TUNSETIFF", &made))
}
