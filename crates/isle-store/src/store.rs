//! The store handle: one writer, one reader, the checkpoint thread and the lock, shared by all clones.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use isle_fail::Point;
use rusqlite::Connection;

use crate::checkpoint::{Checkpointer, WalMonitor};
use crate::connection::Writer;
use crate::error::StoreError;
use crate::instance::Instance;
use crate::integrity_check::Checker;
use crate::readers::Readers;
use crate::run_retention::KeptBytes;
use crate::state_lock::{LOCK_FILE, Phase, StateLock};

/// The store. Cheap to clone; the directory is unlocked when the last clone is dropped.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").field("path", &self.inner.shared.path).finish_non_exhaustive()
    }
}

/// The result of checking the files of a state directory that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnFiles {
    /// Unchanged.
    Intact,
    /// These were missing or changed, and were restored.
    Restored(&'static str),
    /// The directory was removed, moved or replaced.
    DirectoryGone,
}

/// Dropped in this order: the threads first, then the connections, the lock last.
pub(crate) struct Inner {
    pub(crate) _checker: Option<Checker>,
    pub(crate) readers: Readers,
    pub(crate) _checkpointer: Checkpointer,
    pub(crate) shared: Arc<Shared>,
    pub(crate) instance: Mutex<Instance>,
    pub(crate) lock: StateLock,
}

/// What the checkpoint thread shares with the handles.
pub(crate) struct Shared {
    pub(crate) path: PathBuf,
    pub(crate) key_path: PathBuf,
    pub(crate) reader: Mutex<Connection>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) wal: Arc<WalMonitor>,
    pub(crate) kept: KeptBytes,
    /// Damage found by the background check. Nothing is written from then on.
    pub(crate) damage: OnceLock<String>,
}

impl Shared {
    /// The writer, without an open transaction of a caller that panicked.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.roll_back();
        writer
    }
}

impl Store {
    /// The state directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.inner.shared.path.parent().unwrap_or(Path::new("/"))
    }

    /// The identity of the state directory.
    #[must_use]
    pub fn instance(&self) -> Instance {
        self.inner.instance.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the directory of the sandboxes' sockets: running sandboxes keep theirs, whatever the environment
    /// of the next daemon.
    pub fn set_runtime_dir(&self, runtime: &Path) -> Result<(), StoreError> {
        let mut instance = self.inner.instance.lock().unwrap_or_else(PoisonError::into_inner);
        instance.set_runtime_dir(self.directory(), runtime)?;
        self.inner.lock.identify(&instance);
        Ok(())
    }

    /// Restores `instance` and `isle.lock` if they were removed or changed while the directory is in use.
    /// Costs two stats and two small reads.
    pub fn restore_files(&self) -> Result<OwnFiles, StoreError> {
        let instance = self.instance();
        if !instance.is_at(self.directory())? {
            return Ok(OwnFiles::DirectoryGone);
        }
        let lock = self.inner.lock.restore();
        let lock =
            lock.map_err(|error| StoreError::io("restore", &self.directory().join(LOCK_FILE), error))?;
        let identity = instance.restore(self.directory())?;
        Ok(match (identity, lock) {
            (false, false) => OwnFiles::Intact,
            (true, false) => OwnFiles::Restored("instance"),
            (false, true) => OwnFiles::Restored(LOCK_FILE),
            (true, true) => OwnFiles::Restored("instance and isle.lock"),
        })
    }

    /// Records the phase and the socket in the lock file.
    pub fn announce(&self, phase: Phase, socket: Option<&Path>) -> Result<(), StoreError> {
        let written = self.inner.lock.announce(phase, None, socket);
        written.map_err(|error| StoreError::io("write", &self.directory().join("isle.lock"), error))
    }

    /// Damage found by the background check, if any.
    #[must_use]
    pub fn damage(&self) -> Option<&str> {
        self.inner.shared.damage.get().map(String::as_str)
    }

    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&mut Writer) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut writer = self.inner.shared.writer();
        if let Some(reason) = self.inner.shared.wal.broken() {
            return Err(StoreError::Broken { reason });
        }
        if let Some(reason) = self.inner.shared.damage.get() {
            let (path, reason) = (self.inner.shared.path.clone(), reason.clone());
            return Err(StoreError::Corrupt { path, reason });
        }
        let outcome = isle_fail::fail(Point::StoreBegins)
            .map_err(|error| StoreError::io("write", &self.inner.shared.path, error))
            .and_then(|()| change(&mut writer));
        if outcome.is_ok() {
            isle_fail::pass(Point::StoreCommitted);
        }
        drop(writer);
        if matches!(outcome, Err(StoreError::Full)) {
            self.inner.shared.wal.reclaim();
        }
        outcome
    }

    pub(crate) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        query(&self.inner.shared.reader.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
