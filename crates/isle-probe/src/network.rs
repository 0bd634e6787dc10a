//! Ways out that are not files: the network, sockets of the host, shared memory of the host.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use crate::Attack;
use crate::kernel::{c_text, contains, descriptor, errno_name};
use crate::outcome::{Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("net.host_loopback", "connect to a server on the host's loopback", |target| {
        tcp(target, "127.0.0.1", "tcp")
    }),
    Attack::new("net.host_loopback6", "the same over IPv6", |target| tcp(target, "::1", "tcp6")),
    Attack::new("net.host_loopback_mapped", "the same by an IPv4 address written as IPv6", |target| {
        tcp(target, "::ffff:127.0.0.1", "tcp")
    }),
    Attack::new("net.host_any", "the same by the address 0.0.0.0", |target| tcp(target, "0.0.0.0", "tcp")),
    Attack::new("net.host_udp", "exchange datagrams with the host's loopback", udp),
    Attack::new("net.abstract", "connect to an abstract socket of the host", abstract_stream),
    Attack::new("net.abstract_datagram", "send to an abstract socket of the host", abstract_datagram),
    Attack::new("net.unix_path", "connect to a socket file of the host", unix_path),
    Attack::new("net.unix_datagram", "send to a socket file of the host", unix_datagram),
    Attack::new("net.sysv_shm", "attach shared memory of the host", sysv_shm),
    Attack::new("net.sysv_sem", "read a semaphore of the host", sysv_sem),
    Attack::new("net.sysv_msg", "read a message queue of the host", sysv_msg),
    Attack::new("net.posix_mq", "open a POSIX message queue of the host", posix_mq),
    Attack::new("net.posix_shm", "open POSIX shared memory of the host", posix_shm),
    Attack::new("net.metadata", "reach a cloud's metadata service", |_| {
        Ok(route(&["169.254.169.254", "100.100.100.200", "fd00:ec2::254"]))
    }),
    Attack::new("net.private", "reach private networks", |_| {
        Ok(route(&["10.0.0.1", "172.16.0.1", "172.17.0.1", "192.168.0.1", "100.64.0.1"]))
    }),
    Attack::new("net.public", "reach the Internet", |_| Ok(route(&["1.1.1.1", "8.8.8.8", "192.0.2.1"]))),
    Attack::new("net.public6", "reach the Internet over IPv6", |_| {
        Ok(route(&["2606:4700:4700::1111", "2001:db8::1"]))
    }),
    Attack::new("net.multicast", "reach neighbours by multicast", |_| {
        Ok(route(&["224.0.0.251", "239.255.255.250"]))
    }),
    Attack::new("net.dns", "ask a name server", dns),
    Attack::new("net.interfaces", "have an interface besides loopback", interfaces),
    Attack::new("net.connections", "see connections of the host", connections),
    Attack::new("net.raw", "send raw packets", raw),
    Attack::new("net.packet", "listen to all packets", packet),
    Attack::new("net.admin", "change an interface", admin),
];

const PATIENCE: Duration = Duration::from_secs(2);

/// A stream that says the secret is the canary; any other is the sandbox's own.
pub(crate) fn says_secret(target: &Target, what: &str, stream: io::Result<impl Read>) -> Tried {
    let secret = target.secret()?;
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(error) => return Ok(Outcome::contained(format_args!("{what}: {}", errno_name(&error)))),
    };
    let mut piece = [0; 256];
    let count = stream.read(&mut piece).unwrap_or(0);
    Ok(if contains(&piece[..count], &secret) {
        Outcome::escaped(format_args!("the secret, from {what}"))
    } else {
        Outcome::contained(format_args!("{what} is somebody else"))
    })
}

fn tcp(target: &Target, address: &str, port: &'static str) -> Tried {
    let port: u16 = target.number(port)?;
    let Ok(ip) = address.parse::<IpAddr>() else { return Ok(Outcome::not_testable("an odd address")) };
    let stream = TcpStream::connect_timeout(&SocketAddr::new(ip, port), PATIENCE);
    if let Ok(stream) = &stream {
        stream.set_read_timeout(Some(PATIENCE)).ok();
    }
    says_secret(target, address, stream)
}

fn udp(target: &Target) -> Tried {
    let port: u16 = target.number("udp")?;
    let answered = UdpSocket::bind("127.0.0.1:0").and_then(|socket| {
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(("127.0.0.1", port))?;
        socket.send(b"hello")?;
        let mut piece = [0; 256];
        let count = socket.recv(&mut piece)?;
        Ok(io::Cursor::new(piece[..count].to_vec()))
    });
    says_secret(target, "127.0.0.1 (UDP)", answered)
}

fn abstract_stream(target: &Target) -> Tried {
    let name = target.text("abstract")?;
    let stream = std::os::unix::net::SocketAddr::from_abstract_name(name)
        .and_then(|address| UnixStream::connect_addr(&address));
    says_secret(target, "the abstract socket", stream)
}

fn abstract_datagram(target: &Target) -> Tried {
    let name = target.text("abstract-datagram")?;
    let sent = std::os::unix::net::SocketAddr::from_abstract_name(name)
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"hello", &address));
    Ok(Outcome::of("sendto", &sent))
}

fn unix_path(target: &Target) -> Tried {
    says_secret(target, "the socket", UnixStream::connect(target.path("socket")?))
}

fn unix_datagram(target: &Target) -> Tried {
    let path = target.path("datagram")?;
    let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to(b"hello", path));
    Ok(Outcome::of("sendto", &sent))
}

/// The same number may be the sandbox's own segment: only the secret counts.
fn sysv_shm(target: &Target) -> Tried {
    let id: i32 = target.number("shm")?;
    let secret = target.secret()?;
    // SAFETY: read-only, at an address the kernel chooses.
    let address = unsafe { libc::shmat(id, std::ptr::null(), libc::SHM_RDONLY) };
    if address.addr() == usize::MAX {
        return Ok(Outcome::contained(format_args!("shmat: {}", errno_name(&io::Error::last_os_error()))));
    }
    // SAFETY: a segment is at least one page, the secret is shorter.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), secret.len()) };
    Ok(if bytes == secret.as_bytes() {
        Outcome::escaped("the secret")
    } else {
        Outcome::contained("another segment")
    })
}

fn sysv_sem(target: &Target) -> Tried {
    let id: i32 = target.number("sem")?;
    Ok(Outcome::of("semctl", &library_call!(semctl(id, 0, libc::GETVAL))))
}

fn sysv_msg(target: &Target) -> Tried {
    let id: i32 = target.number("msg")?;
    // SAFETY: plain data for which zero is valid.
    let mut about: libc::msqid_ds = unsafe { std::mem::zeroed() };
    Ok(Outcome::of("msgctl", &library_call!(msgctl(id, libc::IPC_STAT, &raw mut about))))
}

fn posix_mq(target: &Target) -> Tried {
    let opened = c_text(target.text("mq")?).and_then(|name| {
        descriptor(kernel_call!(libc::SYS_mq_open, name.as_ptr(), libc::O_RDONLY, 0, 0usize))
    });
    Ok(Outcome::of("mq_open", &opened))
}

fn posix_shm(target: &Target) -> Tried {
    says_secret(target, "/dev/shm", std::fs::File::open(target.path("posix-shm")?))
}

/// Whether there is a way there. Asking the kernel for a datagram's route sends nothing.
fn route(addresses: &[&str]) -> Outcome {
    Outcome::any(addresses.iter().map(|address| {
        let Ok(ip) = address.parse::<IpAddr>() else { return Outcome::not_testable("an odd address") };
        let from = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let routed = UdpSocket::bind(from).and_then(|socket| socket.connect((ip, 80)));
        match routed {
            Ok(()) => Outcome::escaped(format_args!("there is a route to {address}")),
            Err(error) => Outcome::contained(format_args!("{address}: {}", errno_name(&error))),
        }
    }))
}

fn dns(_: &Target) -> Tried {
    let settings = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut servers: Vec<&str> = settings
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver"))
        .map(str::trim)
        .filter(|server| !server.starts_with("127.") && *server != "::1")
        .collect();
    servers.extend(["9.9.9.9", "208.67.222.222"]);
    Ok(route(&servers))
}

fn interfaces(_: &Target) -> Tried {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    if let Err(error) = library_call!(getifaddrs(&raw mut list)) {
        return Ok(Outcome::contained(format_args!("getifaddrs: {}", errno_name(&error))));
    }
    let mut others = Vec::new();
    let mut next = list;
    // SAFETY: the list is what getifaddrs made, each entry valid until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let loopback = entry.ifa_flags & libc::IFF_LOOPBACK.unsigned_abs() != 0;
        // SAFETY: as above; the address may be missing.
        let family = unsafe { entry.ifa_addr.as_ref() }.map(|address| i32::from(address.sa_family));
        if !loopback && matches!(family, Some(libc::AF_INET | libc::AF_INET6)) {
            // SAFETY: as above; the name ends with a NUL.
            others.push(unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned());
        }
    }
    // SAFETY: frees the list of getifaddrs, which is no longer used.
    unsafe { libc::freeifaddrs(list) };
    Ok(if others.is_empty() {
        Outcome::contained("loopback only")
    } else {
        Outcome::escaped(others.join(", "))
    })
}

fn connections(target: &Target) -> Tried {
    let port: u16 = target.number("tcp")?;
    let listening = format!("0100007F:{port:04X}");
    Ok(match std::fs::read_to_string("/proc/net/tcp") {
        Ok(table) if table.contains(&listening) => Outcome::escaped("the canary's server is listed"),
        Ok(_) => Outcome::contained("nothing of the host's"),
        Err(error) => Outcome::contained(format_args!("/proc/net/tcp: {}", errno_name(&error))),
    })
}

fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> Outcome {
    let made = descriptor(library_call!(socket(family, kind | libc::SOCK_CLOEXEC, protocol)));
    Outcome::of(format_args!("socket({family}, {kind}, {protocol})"), &made)
}

fn raw(_: &Target) -> Tried {
    Ok(Outcome::any([
        socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
        socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW),
        socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6),
        socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
    ]))
}

fn packet(_: &Target) -> Tried {
    Ok(Outcome::any([
        socket(libc::AF_PACKET, libc::SOCK_RAW, 0),
        socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0),
    ]))
}

/// Sets the flags of loopback to what they are.
fn admin(_: &Target) -> Tried {
    let socket = match descriptor(library_call!(socket(libc::AF_INET, libc::SOCK_DGRAM, 0))) {
        Ok(socket) => socket,
        Err(error) => return Ok(Outcome::contained(format_args!("socket: {}", errno_name(&error)))),
    };
    // SAFETY: plain data for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = libc::c_char::from_ne_bytes([*byte]);
    }
    let changed = library_call!(ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request))
        .and_then(|_| library_call!(ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request)));
    Ok(Outcome::of("SIOCSIFFLAGS", &changed))
}
