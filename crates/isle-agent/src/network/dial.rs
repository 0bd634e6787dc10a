//! A connection from the host to a port of the sandbox.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use isle_wire::{
    DescriptorSender, DialRequest, Failure, FailureKind, FrameError, Reply, Stream, socket_cookie,
    write_message,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::io::AsyncWriteExt;

use super::{HandOver, carried, connect};
use crate::mode::{Mode, NetworkAccess};

/// Connects to a port on loopback, over IPv4 or IPv6, and passes the socket or carries the connection. Where the
/// loopback interface is the host's, its ports do not belong to the sandbox.
pub(crate) async fn dial(
    mut stream: Stream,
    mode: &Mode,
    request: &DialRequest,
    descriptors: Option<DescriptorSender>,
) -> Result<(), FrameError> {
    let unsupported = || std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    let reply = match HandOver::of(request.connections, descriptors) {
        None => failed(request, FailureKind::NoDescriptorPassing, &unsupported()),
        Some(_) if mode.network != NetworkAccess::OwnNamespace => {
            failed(request, FailureKind::NotInThisMode, &unsupported())
        }
        Some(hand_over) => match (connect_to(request).await, hand_over) {
            (Err(error), _) => failed(request, FailureKind::Other, &error),
            (Ok((cookie, socket)), HandOver::Pass(descriptors)) => {
                descriptors.push(socket);
                Reply::Connected(cookie)
            }
            (Ok((cookie, socket)), HandOver::Carry) => {
                write_message(&mut stream, &Reply::Connected(cookie)).await?;
                carried::copy(socket, stream).await.ok();
                return Ok(());
            }
        },
    };
    write_message(&mut stream, &reply).await?;
    stream.shutdown().await.ok();
    Ok(())
}

async fn connect_to(request: &DialRequest) -> std::io::Result<(u64, OwnedFd)> {
    let mut refused = None;
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        match connected(address, request.port).await {
            Ok(connected) => return Ok(connected),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| std::io::ErrorKind::ConnectionRefused.into()))
}

fn failed(request: &DialRequest, kind: FailureKind, error: &std::io::Error) -> Reply {
    Reply::Failed(Failure {
        kind,
        errno: error.raw_os_error().unwrap_or(0),
        doing: format!("connect to port {}: {error}", request.port),
    })
}

async fn connected(address: IpAddr, port: u16) -> std::io::Result<(u64, OwnedFd)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    let socket = connect::connect(socket, (address, port).into()).await?;
    Ok((socket_cookie(&socket)?, socket))
}
