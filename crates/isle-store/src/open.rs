//! Opening a state directory: lock it, inspect it read-only, migrate the schema, check the head of the audit
//! chain. A database that cannot be used is never treated as an empty one.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, MAIN_DB};

use crate::audit::Chain;
use crate::checkpoint::{Checkpointer, WalMonitor};
use crate::connection::{Writer, connect, connect_further, use_log};
use crate::error::{StoreError, means_corrupt};
use crate::files;
use crate::instance::Instance;
use crate::integrity_check::Checker;
use crate::readers::Readers;
use crate::run_retention::KeptBytes;
use crate::schema::{self, APPLICATION_ID, MIGRATIONS};
use crate::state_lock::{self, LOCK_FILE, Phase};
use crate::store::{Inner, Shared, Store};

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The offset of `user_version` in the header of a SQLite file.
const VERSION_OFFSET: usize = 60;
const HEADER_LENGTH: usize = 100;
/// A larger database is not checked during the start, because the check reads all of it. If it was not closed
/// properly, it is checked in the background.
const ALWAYS_CHECKED_BYTES: u64 = 16 << 20;

impl Store {
    /// Opens the state directory, creating it if it is missing. Only one process can have it open.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        files::private_directory(dir)?;
        let lock = state_lock::lock(dir)?;
        let path = dir.join("isle.db");
        let key_path = dir.join("audit.key");
        let log_bytes = inspect_files(&path, &key_path)?;
        // From a version without identities.
        let is_older = files::size(&path)? > 0 || dir.join("native").exists();
        let wal = Arc::new(WalMonitor::default());
        let mut connection = open_checked(&path, log_bytes).map_err(busy_means_locked)?;
        let instance = Instance::load(dir, is_older, lock.identity())?;
        lock.announce(Phase::Starting, Some(&instance), None)
            .map_err(|error| StoreError::io("write", &dir.join(LOCK_FILE), error))?;
        use_log(&connection)?;
        if schema::migrate(&mut connection, &path, MIGRATIONS)? {
            // The files written below must not reach the disk before the schema.
            connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE)?;
        }
        let chain = Chain::load(&mut connection, &key_path)?;
        let watched = Arc::clone(&wal);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
            watched.committed(u32::try_from(pages).unwrap_or(0));
            Ok(())
        }))?;
        let shared = Arc::new(Shared {
            reader: Mutex::new(connect_further(&path)?),
            writer: Mutex::new(Writer { connection, chain }),
            wal,
            kept: KeptBytes::default(),
            damage: OnceLock::new(),
            key_path,
            path: path.clone(),
        });
        let checkpointer = Checkpointer::start(&path, Arc::clone(&shared))?;
        let readers = Readers::start(&path)?;
        let is_unchecked = log_bytes > 0 && files::size(&path)?.max(log_bytes) > ALWAYS_CHECKED_BYTES;
        let checker = is_unchecked.then(|| Checker::start(&path, Arc::clone(&shared))).transpose()?;
        Ok(Self {
            inner: Arc::new(Inner {
                _checker: checker,
                readers,
                _checkpointer: checkpointer,
                shared,
                lock,
                instance: Mutex::new(instance),
            }),
        })
    }
}

/// A database that another process uses although the lock was free: the lock file was removed or replaced.
fn busy_means_locked(error: StoreError) -> StoreError {
    match error {
        StoreError::Database(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
            StoreError::Locked { pid: None }
        }
        other => other,
    }
}

/// Rejects files of other programs by reading only, since opening a database with SQLite may create, replay
/// or delete files beside it. Returns the length of a remaining log.
fn inspect_files(path: &Path, key_path: &Path) -> Result<u64, StoreError> {
    let corrupt = |reason: &str| StoreError::Corrupt { path: path.to_owned(), reason: reason.to_owned() };
    let log_bytes = files::size(&log_path(path))?;
    let mut header = Vec::with_capacity(HEADER_LENGTH);
    match File::open(path) {
        Ok(file) => file
            .take(HEADER_LENGTH as u64)
            .read_to_end(&mut header)
            .map_err(|error| StoreError::io("read", path, error))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if log_bytes > 0 {
                return Err(corrupt("it is missing, but its write-ahead log is not empty"));
            }
            return Ok(0);
        }
        Err(error) => return Err(StoreError::io("open", path, error)),
    };
    if header.is_empty() {
        // SQLite would treat it as a new database and discard the log.
        if log_bytes > 0 || files::size(key_path)? > 0 {
            return Err(corrupt("it is empty, but it was not before"));
        }
        return Ok(0);
    }
    if header.len() < HEADER_LENGTH || !header.starts_with(MAGIC) {
        return Err(corrupt("it is not a SQLite database"));
    }
    let mut version = [0; 4];
    version.copy_from_slice(&header[VERSION_OFFSET..VERSION_OFFSET + 4]);
    too_new(u32::from_be_bytes(version))?;
    Ok(log_bytes)
}

fn log_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push("-wal");
    path.with_file_name(name)
}

fn too_new(found: u32) -> Result<(), StoreError> {
    let known = schema::newest(MIGRATIONS);
    if found > known { Err(StoreError::TooNew { found, known }) } else { Ok(()) }
}

/// Opens the database and checks it. Until it is known to be intact, closing it must not checkpoint a
/// remaining log.
fn open_checked(path: &Path, log_bytes: u64) -> Result<Connection, StoreError> {
    files::private_file(path)?;
    let connection = connect(path)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, log_bytes > 0)?;
    match check(&connection, path, log_bytes) {
        Ok(()) => {}
        Err(StoreError::Database(error)) if means_corrupt(&error) => {
            return Err(StoreError::Corrupt { path: path.to_owned(), reason: error.to_string() });
        }
        Err(error) => return Err(error),
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(connection)
}

fn check(connection: &Connection, path: &Path, log_bytes: u64) -> Result<(), StoreError> {
    let corrupt = |reason: String| Err(StoreError::Corrupt { path: path.to_owned(), reason });
    // The log may contain a newer version than the header.
    let version = schema::version(connection)?;
    too_new(version)?;
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if version == 0 {
        return if objects == 0 { Ok(()) } else { corrupt("it is a database of another program".to_owned()) };
    }
    let stamp: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if stamp != APPLICATION_ID {
        return corrupt("it is a database of another program".to_owned());
    }
    if files::size(path)?.max(log_bytes) > ALWAYS_CHECKED_BYTES {
        return Ok(());
    }
    match find_damage(connection)? {
        None => Ok(()),
        Some(finding) if could_not_read(&finding) => Err(StoreError::Broken { reason: finding }),
        Some(finding) => corrupt(finding),
    }
}

/// Checks the whole database; returns what is wrong with it.
pub(crate) fn find_damage(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let finding: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((finding != "ok").then_some(finding))
}

/// Whether the check failed because of an I/O error and not because of damage. The finding ends with SQLite's
/// error code, whose last byte is the primary code.
pub(crate) fn could_not_read(finding: &str) -> bool {
    let number = finding.rsplit_once("error code=").and_then(|(_, number)| number.trim().parse::<i32>().ok());
    number.is_some_and(|number| number & 0xff == rusqlite::ffi::SQLITE_IOERR)
}
