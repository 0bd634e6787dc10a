//! Setting a damaged database aside. Only when somebody asks for it: a database that cannot be used may be
//! another program's, or one of which a backup exists, and it is the only record of what was done. Nothing
//! is deleted; what was set aside can be put back.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::audit::AuditEntry;
use crate::clock::wall_clock_ms;
use crate::error::StoreError;
use crate::files;
use crate::store::Store;

/// The database first: without it the log beside it counts as damage too, while a database without its log
/// could pass for a whole one. The key last: it seals the chain in that database, and a new one that begins
/// under it would look like one whose rows were removed.
const FILES: [&str; 4] = ["isle.db", "isle.db-wal", "isle.db-shm", "audit.key"];

/// A database that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// What was wrong with it.
    pub reason: String,
    /// Where its files are now.
    pub place: PathBuf,
    /// Their names.
    pub files: Vec<String>,
}

impl Store {
    /// Sets the database of a state directory aside if it is damaged, and begins a new one whose first row
    /// says so; `None` when nothing is wrong with it. `actor` is who asked.
    pub fn quarantine(dir: &Path, actor: &str, door: &str) -> Result<Option<Quarantined>, StoreError> {
        let reason = match Self::open(dir) {
            Ok(_) => return Ok(None),
            Err(StoreError::Corrupt { reason, .. }) => reason,
            Err(error) => return Err(error),
        };
        let quarantined = {
            let _lock = files::lock(&dir.join("isle.lock"))?;
            set_aside(dir, reason)?
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

fn set_aside(dir: &Path, reason: String) -> Result<Quarantined, StoreError> {
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

/// A directory nothing is in, named after the time.
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
