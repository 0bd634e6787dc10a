//! A connection from the host to a port of the sandbox.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use isle_wire::{DialRequest, Failure, FailureKind, FrameError, Reply, Stream, write_message};
use tokio::net::TcpStream;

use super::take::both_ways;

/// Connects to a port on loopback, over either family, and carries its bytes.
pub(crate) async fn dial(mut stream: Stream, request: &DialRequest) -> Result<(), FrameError> {
    let mut refused = None;
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        match TcpStream::connect((address, request.port)).await {
            Ok(mut socket) => {
                socket.set_nodelay(true).ok();
                write_message(&mut stream, &Reply::Done).await?;
                if both_ways(&mut socket, stream).await.is_err() {
                    super::take::reset(socket);
                }
                return Ok(());
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let error = refused.unwrap_or_else(|| std::io::ErrorKind::ConnectionRefused.into());
    let failure = Failure {
        kind: FailureKind::Other,
        errno: error.raw_os_error().unwrap_or(0),
        doing: format!("connect to port {}: {error}", request.port),
    };
    write_message(&mut stream, &Reply::Failed(failure)).await
}
