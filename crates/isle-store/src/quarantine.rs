//! Quarantine of a damaged database, on request only: a database that cannot be used may be that of another
//! program or have a backup, and it is the only record of what was done. Nothing is deleted; quarantined
//! files can be moved back.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::audit::AuditEntry;
use crate::error::StoreError;
use crate::files;
use crate::store::Store;
use isle_core::clock::wall_clock_ms;

/// The database first: without it a remaining log is reported as damage too, while a database without its log
/// could look intact. The key last: with it, a new chain would look like one whose rows were removed.
const FILES: [&str; 4] = ["isle.db", "isle.db-wal", "isle.db-shm", "audit.key"];

/// A quarantined database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// What was wrong with it.
    pub reason: String,
    /// The directory of its files.
    pub place: PathBuf,
    /// Their names.
    pub files: Vec<String>,
}

impl Store {
    /// Quarantines the database of a state directory if it is damaged, and creates a new one whose first
    /// audit row records it; `None` if the database is intact. `actor` is the caller.
    pub fn quarantine(dir: &Path, actor: &str, door: &str) -> Result<Option<Quarantined>, StoreError> {
        let reason = match Self::open(dir) {
            Ok(_) => return Ok(None),
            Err(StoreError::Corrupt { reason, .. }) => reason,
            Err(error) => return Err(error),
        };
        let quarantined = {
            let _lock = crate::state_lock::lock(dir)?;
            move_files(dir, reason)?
        };
        let entry = AuditEntry {
            time_ms: wall_clock_ms(),
            actor: actor.to_owned(),
            door: door.to_owned(),
            action: "repair".to_owned(),
            detail: json!({ "quarantined": quarantined.place, "reason": quarantined.reason }),
            ..AuditEntry::default()
        };
        Self::open(dir)?.append_audit(&entry)?;
        Ok(Some(quarantined))
    }
}

fn move_files(dir: &Path, reason: String) -> Result<Quarantined, StoreError> {
    let quarantine = dir.join("quarantine");
    files::private_directory(&quarantine)?;
    let place = fresh(&quarantine)?;
    let mut moved = Vec::new();
    for name in FILES {
        let from = dir.join(name);
        match fs::symlink_metadata(&from) {
            Ok(_) => {
                files::rename_synced(&from, &place.join(name))?;
                moved.push(name.to_owned());
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::io("look at", &from, error)),
        }
    }
    Ok(Quarantined { reason, place, files: moved })
}

/// A new directory, named after the time.
fn fresh(quarantine: &Path) -> Result<PathBuf, StoreError> {
    let mut number = wall_clock_ms();
    loop {
        let place = quarantine.join(number.to_string());
        match fs::create_dir(&place) {
            Ok(()) => {
                files::private_directory(&place)?;
                return Ok(place);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(StoreError::io("make", &place, error)),
        }
    }
}
