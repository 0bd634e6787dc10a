//! A connection from the host to a port of the sandbox.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use isle_wire::{DialRequest, Failure, FailureKind, Outbox, Reply, socket_number};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::connect;
use crate::place;

/// Connects to a port on loopback, over either family, and hands the socket over. Where loopback is the
/// host's nothing of it is the sandbox's.
pub(crate) async fn dial(request: &DialRequest, outbox: &Outbox) -> Reply {
    if place::private().is_some() {
        return failed(request, &std::io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
    }
    let mut refused = None;
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        match connected(address, request.port).await {
            Ok((number, socket)) => {
                outbox.put(socket);
                return Reply::Connected(number);
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    failed(request, &refused.unwrap_or_else(|| std::io::ErrorKind::ConnectionRefused.into()))
}

fn failed(request: &DialRequest, error: &std::io::Error) -> Reply {
    Reply::Failed(Failure {
        kind: FailureKind::Other,
        errno: error.raw_os_error().unwrap_or(0),
        doing: format!("connect to port {}: {error}", request.port),
    })
}

async fn connected(address: IpAddr, port: u16) -> std::io::Result<(u64, OwnedFd)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    let socket = connect::connect(socket, (address, port).into()).await?;
    Ok((socket_number(&socket)?, socket))
}
