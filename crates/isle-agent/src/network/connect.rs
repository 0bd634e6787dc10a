//! Connections the agent makes. It lives under the filter that has it answer where programs connect to, and
//! cannot answer itself: its own addresses have a length that nobody looks at.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use isle_linux::setup::seccomp::UNWATCHED_ADDRESS;
use isle_linux::sys::check;

use super::address::written;
use crate::watched::watch;

/// How long a connection within the sandbox may take: whoever listens is slow to accept, or does not.
const PATIENCE: Duration = Duration::from_secs(10);
const LENGTH: usize = UNWATCHED_ADDRESS as usize;

/// Begins to connect a socket that does not block.
pub(super) fn begin(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let bytes: [u8; LENGTH] = written(address);
    // SAFETY: the kernel reads so many bytes as there are, which outlive the call.
    let called = unsafe { libc::connect(socket.as_raw_fd(), bytes.as_ptr().cast(), UNWATCHED_ADDRESS) };
    check(called.into()).map(drop)
}

/// Waits for what was begun.
pub(super) async fn finish(socket: OwnedFd) -> io::Result<OwnedFd> {
    let socket = watch(socket)?;
    let ready = tokio::time::timeout(PATIENCE, socket.writable()).await;
    ready.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??.retain_ready();
    rustix::net::sockopt::socket_error(socket.get_ref())??;
    Ok(socket.into_inner())
}

/// Connects a socket that does not block.
pub(super) async fn connect(socket: OwnedFd, address: SocketAddr) -> io::Result<OwnedFd> {
    match begin(socket.as_fd(), address) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => finish(socket).await,
        Err(error) => Err(error),
    }
}
