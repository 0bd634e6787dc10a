//! Allows one process at a time to start the daemon. The store's own lock ensures one daemon per state
//! directory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use isle_client::Result;
use isle_core::{Code, Error};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::lock_holder::WaitLimit;
use crate::paths::{Paths, cannot};

/// Held by the process that starts a daemon; the others wait for this lock.
#[derive(Debug)]
pub(crate) struct StarterLock {
    _file: File,
}

impl StarterLock {
    /// Waits for the lock until the limit is reached.
    pub(crate) fn wait(paths: &Paths, wait_limit: &WaitLimit) -> Result<Self> {
        let path = paths.state_dir.join("starter.lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| cannot("open", &path, &error))?;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(Errno::WOULDBLOCK) if wait_limit.is_left() => wait_limit.pause(),
                Err(Errno::WOULDBLOCK) => {
                    let log = paths.log().display().to_string();
                    return Err(Error::new(
                        Code::DaemonUnavailable,
                        format!("another command is starting the daemon of {}", paths.state_dir.display()),
                    )
                    .detail("log", log.clone())
                    .next(format!("retry, or check the daemon's log: {log}"))
                    .into());
                }
                Err(error) => return Err(cannot("lock", &path, &error.into())),
            }
        }
    }
}
