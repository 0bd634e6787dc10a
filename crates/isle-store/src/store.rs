//! The handle: one writer, one reader, the checkpointing thread and the lock, shared by all clones.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isle_fail::Point;
use rusqlite::Connection;

use crate::checkpoint::{Checkpointer, Gauge};
use crate::connection::Writer;
use crate::error::StoreError;
use crate::files::Lock;

/// The store. Cheap to clone; the directory is let go when the last clone is dropped.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").field("path", &self.inner.shared.path).finish_non_exhaustive()
    }
}

/// Dropped in this order: the thread first, then the connections, the lock last.
pub(crate) struct Inner {
    pub(crate) _checkpointer: Checkpointer,
    pub(crate) shared: Arc<Shared>,
    pub(crate) _lock: Lock,
}

/// What the checkpointing thread shares with the handles.
pub(crate) struct Shared {
    pub(crate) path: PathBuf,
    pub(crate) key_path: PathBuf,
    pub(crate) reader: Mutex<Connection>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) gauge: Arc<Gauge>,
}

impl Shared {
    /// The writer, with nothing left over from a caller that panicked.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.abandon();
        writer
    }
}

impl Store {
    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.inner.shared.path.parent().unwrap_or(Path::new("/"))
    }

    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&mut Writer) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut writer = self.inner.shared.writer();
        if let Some(reason) = self.inner.shared.gauge.broken() {
            return Err(StoreError::Broken { reason });
        }
        let outcome = isle_fail::fail(Point::StoreBegins)
            .map_err(|error| StoreError::io("write", &self.inner.shared.path, error))
            .and_then(|()| change(&mut writer));
        if outcome.is_ok() {
            isle_fail::pass(Point::StoreCommitted);
        }
        drop(writer);
        if matches!(outcome, Err(StoreError::Full)) {
            self.inner.shared.gauge.reclaim();
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
mod tests {
    use crate::{AuditEntry, Store, StoreError};

    #[test]
    fn a_full_database_is_reported_and_the_chain_goes_on_once_there_is_room() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let limit = |pages: i64| {
            store.inner.shared.writer().connection.pragma_update_and_check(
                None,
                "max_page_count",
                pages,
                |_| Ok(()),
            )
        };
        limit(1).unwrap(); // no fewer than there are now
        let entry = AuditEntry { actor: "x".repeat(10_000), ..AuditEntry::default() };
        assert!(matches!(store.append_audit(&entry), Err(StoreError::Full)));
        limit(1_000).unwrap();
        assert_eq!(store.append_audit(&entry).unwrap(), 1);
        assert!(store.verify_audit().unwrap().is_intact());
    }

    #[test]
    fn a_caller_that_panics_in_the_middle_of_a_change_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let other = store.clone();
        let panicked = std::thread::spawn(move || {
            other.write(|writer| {
                writer.transaction(|connection, _| -> Result<(), StoreError> {
                    connection.execute("INSERT INTO facts VALUES ('half', 'done')", [])?;
                    panic!("on purpose")
                })
            })
        })
        .join();
        assert!(panicked.is_err());
        assert_eq!(store.append_audit(&AuditEntry::default()).unwrap(), 1);
        assert_eq!(store.get_fact("half").unwrap(), None);
    }
}
