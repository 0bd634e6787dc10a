//! Opening a state directory: lock it, look before touching, bring the schema up to date, check the
//! head of the audit chain. A database that cannot be used is never taken for an empty one.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB};

use crate::audit::Chain;
use crate::checkpoint::{Checkpointer, Gauge};
use crate::connection::{Writer, connect, connect_further, use_log};
use crate::error::{StoreError, means_corrupt};
use crate::files;
use crate::schema::{self, APPLICATION_ID, MIGRATIONS};
use crate::store::{Inner, Shared, Store};

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Where the header of a SQLite file keeps `user_version`.
const VERSION_OFFSET: usize = 60;
const HEADER_LENGTH: usize = 100;
/// A larger database is checked in full only when it was not closed in order: the check reads it all.
const ALWAYS_CHECKED_BYTES: u64 = 64 << 20;

impl Store {
    /// Opens the state directory, making it when it is missing. One opener at a time.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        files::private_directory(dir)?;
        let lock = files::lock(&dir.join("isle.lock"))?;
        let path = dir.join("isle.db");
        let key_path = dir.join("audit.key");
        let log_bytes = look_before_touching(&path, &key_path)?;
        let gauge = Arc::new(Gauge::default());
        let mut connection = open_checked(&path, log_bytes)?;
        use_log(&connection)?;
        if schema::migrate(&mut connection, &path, MIGRATIONS)? {
            // What follows writes other files and relies on the schema being on disk before them.
            connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE)?;
        }
        let chain = Chain::load(&mut connection, &key_path)?;
        let watched = Arc::clone(&gauge);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
            watched.committed(u32::try_from(pages).unwrap_or(0));
            Ok(())
        }))?;
        let shared = Arc::new(Shared {
            reader: Mutex::new(connect_further(&path)?),
            writer: Mutex::new(Writer { connection, chain }),
            gauge,
            key_path,
            path: path.clone(),
        });
        let checkpointer = Checkpointer::start(&path, Arc::clone(&shared))?;
        Ok(Self { inner: Arc::new(Inner { _checkpointer: checkpointer, shared, _lock: lock }) })
    }
}

/// Refuses what cannot be ours by reading only, since the mere opening of a database by SQLite may
/// create, replay or delete files beside it. Answers the length of the log left behind.
fn look_before_touching(path: &Path, key_path: &Path) -> Result<u64, StoreError> {
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
                return Err(corrupt("it is missing, but the log that belongs to it is not empty"));
            }
            return Ok(0);
        }
        Err(error) => return Err(StoreError::io("open", path, error)),
    };
    if header.is_empty() {
        // SQLite would take it for a new database and throw the log away.
        if log_bytes > 0 || files::size(key_path)? > 0 {
            return Err(corrupt("it is empty, but it was not always"));
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

/// Opens the database and checks it. While it is not known to be good, closing it must not fold a log
/// that was left behind into it.
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
    // The log may hold a newer version than the header that was read before.
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
    if log_bytes == 0 && files::size(path)? > ALWAYS_CHECKED_BYTES {
        return Ok(());
    }
    let finding: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    match finding.as_str() {
        "ok" => Ok(()),
        _ if could_not_read(&finding) => Err(StoreError::Broken { reason: finding }),
        _ => corrupt(finding),
    }
}

/// Whether the check did not find damage, but a disk that could not be read: the number it ends with is
/// SQLite's, whose last byte says what kind of error it is.
fn could_not_read(finding: &str) -> bool {
    let number = finding.rsplit_once("error code=").and_then(|(_, number)| number.trim().parse::<i32>().ok());
    number.is_some_and(|number| number & 0xff == rusqlite::ffi::SQLITE_IOERR)
}
