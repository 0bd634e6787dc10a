//! The arguments of a program's `connect` call: its socket, and the address in its memory.

use std::fs::{self, File};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileExt;

use isle_setup::seccomp::Notification;

/// `struct sockaddr_in6`, the longest supported.
const LONGEST: usize = 28;
/// `struct sockaddr_in`.
const FOUR: usize = 16;

/// The inode of the socket that is the first argument of a call.
pub(super) fn socket_behind(notification: &Notification) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{}/fd/{}", notification.pid, notification.int(0))).ok()?;
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The address in the second and third argument of a call, or an error number.
pub(super) fn read_address(notification: &Notification) -> Result<SocketAddr, i32> {
    let length = usize::try_from(notification.int(2)).map_err(|_| libc::EINVAL)?.min(LONGEST);
    let memory = File::open(format!("/proc/{}/mem", notification.pid)).map_err(|_| libc::EACCES)?;
    let mut bytes = [0; LONGEST];
    memory.read_exact_at(&mut bytes[..length], notification.arguments[1]).map_err(|_| libc::EFAULT)?;
    parse_address(&bytes[..length])
}

/// Parses an address in the kernel's format, or returns an error number.
fn parse_address(bytes: &[u8]) -> Result<SocketAddr, i32> {
    let family = bytes.first_chunk().map(|family| i32::from(u16::from_ne_bytes(*family)));
    let port = bytes.get(2..4).and_then(<[u8]>::first_chunk).map(|port| u16::from_be_bytes(*port));
    let (Some(family), Some(port)) = (family, port) else { return Err(libc::EINVAL) };
    match family {
        libc::AF_INET if bytes.len() >= FOUR => {
            let address: [u8; 4] = *bytes[4..].first_chunk().ok_or(libc::EINVAL)?;
            Ok((Ipv4Addr::from(address), port).into())
        }
        libc::AF_INET6 if bytes.len() >= LONGEST - 4 => {
            let address: [u8; 16] = *bytes[8..].first_chunk().ok_or(libc::EINVAL)?;
            Ok((Ipv6Addr::from(address), port).into())
        }
        libc::AF_INET | libc::AF_INET6 => Err(libc::EINVAL),
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// An address in the kernel's format, padded with zeros.
pub(super) fn written<const LENGTH: usize>(address: SocketAddr) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let mut put = |at: usize, part: &[u8]| {
        for (place, byte) in bytes.iter_mut().skip(at).zip(part) {
            *place = *byte;
        }
    };
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    put(0, &u16::try_from(family).unwrap_or_default().to_ne_bytes());
    put(2, &address.port().to_be_bytes());
    match address {
        SocketAddr::V4(four) => put(4, &four.ip().octets()),
        SocketAddr::V6(six) => put(8, &six.ip().octets()),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["127.0.0.1:80", "10.1.2.3:65535", "[::1]:3128", "[fd00::5]:22", "[::ffff:1.2.3.4]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            let bytes: [u8; LONGEST] = written(address);
            assert_eq!(parse_address(&bytes), Ok(address));
        }
    }

    #[test]
    fn an_incomplete_or_other_address_is_rejected() {
        let four: [u8; FOUR] = written("127.0.0.1:80".parse().unwrap());
        let six: [u8; LONGEST] = written("[::1]:80".parse().unwrap());
        for length in 0..FOUR {
            assert!(parse_address(&four[..length]).is_err(), "{length}");
        }
        for length in 0..LONGEST - 4 {
            assert!(parse_address(&six[..length]).is_err(), "{length}");
        }
        for family in [libc::AF_UNSPEC, libc::AF_UNIX, libc::AF_NETLINK, libc::AF_VSOCK] {
            let mut bytes = six;
            bytes[..2].copy_from_slice(&u16::try_from(family).unwrap().to_ne_bytes());
            assert_eq!(parse_address(&bytes), Err(libc::EAFNOSUPPORT));
        }
    }
}
