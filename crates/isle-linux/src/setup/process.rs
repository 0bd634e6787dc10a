//! Tier `process`.

use std::os::fd::OwnedFd;

use crate::sys::{Doing, Step};

/// Not here yet.
pub fn unsupported() -> Step<(i32, OwnedFd)> {
    Err(std::io::Error::from_raw_os_error(libc::ENOSYS)).doing(|| "set up tier process".into())
}
