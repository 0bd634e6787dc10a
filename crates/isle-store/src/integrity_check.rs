//! The background check of a large database that was not closed properly: reading all of it takes seconds,
//! and a start must not wait. Nothing is written after damage was found.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::connection::connect_reader;
use crate::error::StoreError;
use crate::open::{could_not_read, find_damage};
use crate::store::Shared;

/// SQLite virtual machine steps between two checks for cancellation.
const STEPS: i32 = 10_000;

/// The running check; cancelled when dropped.
pub(crate) struct Checker {
    cancelled: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Checker {
    pub(crate) fn start(path: &Path, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let mut connection = connect_reader(path)?;
        let cancelled = Arc::new(AtomicBool::new(false));
        let is_cancelled = Arc::clone(&cancelled);
        connection.progress_handler(STEPS, Some(move || is_cancelled.load(Ordering::Relaxed)))?;
        let thread = std::thread::Builder::new()
            .name("isle-check".to_owned())
            .spawn(move || {
                crate::readers::lower_priority();
                match find_damage(&connection) {
                    Ok(None) => tracing::info!("the state database was checked after a crash: no damage"),
                    Ok(Some(finding)) if could_not_read(&finding) => {
                        tracing::error!(finding, "the state database could not be read to check it");
                    }
                    Ok(Some(finding)) => {
                        tracing::error!(
                            finding,
                            "the state database is damaged; no more changes are written"
                        );
                        drop(shared.damage.set(finding));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the state database could not be checked in the background");
                    }
                }
            })
            .map_err(|error| StoreError::io("start a thread for", path, error))?;
        Ok(Self { cancelled, thread: Some(thread) })
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the database check thread panicked");
        }
    }
}
