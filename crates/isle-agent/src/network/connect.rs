//! Connections made by the agent. The seccomp filter that makes it decide about `connect` calls applies to
//! the agent too, which could not answer itself: it passes addresses with a length that the filter lets
//! through.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use isle_setup::seccomp::UNWATCHED_ADDRESS;
use isle_setup::sys::check;

use super::sockaddr::written;
use crate::async_fd::register;

/// Timeout of a connection within the sandbox: the listener may be slow to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const LENGTH: usize = UNWATCHED_ADDRESS as usize;

/// Starts to connect a non-blocking socket.
pub(super) fn begin(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let bytes: [u8; LENGTH] = written(address);
    // SAFETY: the kernel reads so many bytes as there are, which outlive the call.
    let called = unsafe { libc::connect(socket.as_raw_fd(), bytes.as_ptr().cast(), UNWATCHED_ADDRESS) };
    check(called.into()).map(drop)
}

/// Waits until a started connection is established.
pub(super) async fn finish(socket: OwnedFd) -> io::Result<OwnedFd> {
    let socket = register(socket)?;
    let ready = tokio::time::timeout(CONNECT_TIMEOUT, socket.writable()).await;
    ready.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??.retain_ready();
    rustix::net::sockopt::socket_error(socket.get_ref())??;
    Ok(socket.into_inner())
}

/// Connects a non-blocking socket.
pub(super) async fn connect(socket: OwnedFd, address: SocketAddr) -> io::Result<OwnedFd> {
    match begin(socket.as_fd(), address) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => finish(socket).await,
        Err(error) => Err(error),
    }
}
