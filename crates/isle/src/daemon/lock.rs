//! One starter at a time. That there is one daemon per state directory is the store's own lock.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use isle_client::Result;
use rustix::fs::{FlockOperation, flock};

use crate::places::{Places, cannot};

/// Held by whoever starts a daemon; the others wait for it here instead of looking again and again.
#[derive(Debug)]
pub(crate) struct StarterLock {
    _file: File,
}

impl StarterLock {
    /// Waits for the lock.
    pub(crate) fn wait(places: &Places) -> Result<Self> {
        let path = places.state_dir.join("starter.lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| cannot("open", &path, &error))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| cannot("lock", &path, &error.into()))?;
        Ok(Self { _file: file })
    }
}
