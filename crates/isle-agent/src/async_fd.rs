//! Registering descriptors with the runtime.

use std::io;
use std::os::fd::AsRawFd;

use tokio::io::unix::AsyncFd;

/// Registers a descriptor for both directions.
pub(crate) fn register<T: AsRawFd + Owned>(descriptor: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: an `Owned` value keeps its descriptor open and unchanged until it is dropped, and
    // no mutable access that AsyncFd offers is used in this program.
    unsafe { AsyncFd::register(descriptor) }.map_err(|error| io::Error::other(error.to_string()))
}

/// Values that own one descriptor until they are dropped.
pub(crate) trait Owned {}
impl Owned for std::os::fd::OwnedFd {}
impl Owned for isle_setup::seccomp::Listener {}
