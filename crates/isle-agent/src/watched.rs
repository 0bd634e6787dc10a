//! Descriptors the runtime watches.

use std::io;
use std::os::fd::AsRawFd;

use tokio::io::unix::AsyncFd;

/// Has the runtime watch a descriptor.
pub(crate) fn watch<T: AsRawFd + Owned>(descriptor: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: an `Owned` value keeps its descriptor open and unchanged until it is dropped, and
    // AsyncFd hands out no mutable access that is used in this program.
    unsafe { AsyncFd::register(descriptor) }.map_err(|error| io::Error::other(error.to_string()))
}

/// Values that own one descriptor for their whole life.
pub(crate) trait Owned {}
impl Owned for std::os::fd::OwnedFd {}
impl Owned for isle_linux::setup::seccomp::Listener {}
