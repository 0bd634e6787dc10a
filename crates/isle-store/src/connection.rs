//! Set-up of connections, and the writer: the only connection that changes data, with the head of the audit
//! chain in memory.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::audit::{Chain, Head};
use crate::error::StoreError;

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const CACHED_STATEMENTS: usize = 64;
/// The size to which the write-ahead log is truncated on restart.
const KEPT_LOG_BYTES: i64 = 4 << 20;

/// Page size, as a power of two. A commit writes every changed page to the log, and most records are small,
/// so small pages make every call a third faster than the default of 4 KiB.
pub(crate) const PAGE_SHIFT: u32 = 10;

/// Only this process uses the database (the state directory is locked), so its connections lock in memory
/// instead of calling the kernel a dozen times for every record.
const ONE_PROCESS: &str = "unix-excl";

/// Opens a connection. Triggers and views are disabled, so that a tampered schema cannot use them.
pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(path, flags, ONE_PROCESS)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    Ok(connection)
}

/// Configures a write-ahead log that only the checkpoint thread flushes.
pub(crate) fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    // Has an effect only on an empty database.
    connection.pragma_update(None, "page_size", 1 << PAGE_SHIFT)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", KEPT_LOG_BYTES, |_| Ok(()))?;
    connection.pragma_update(None, "temp_store", "memory")
}

/// A further connection to a database that is already set up.
pub(crate) fn connect_further(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connect(path)?;
    use_log(&connection)?;
    Ok(connection)
}

/// Page cache of a connection for listings.
const READER_CACHE_KIB: i32 = -1024;

/// A connection that only reads.
pub(crate) fn connect_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connect_further(path)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", READER_CACHE_KIB)?;
    Ok(connection)
}

/// The writing connection.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) chain: Chain,
}

impl Writer {
    /// Runs a change as one transaction: all of it, or nothing.
    pub(crate) fn transaction<T>(
        &mut self,
        change: impl FnOnce(&Connection, &mut Draft<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut draft = Draft { chain: &self.chain, head: None };
        let outcome = change(&self.connection, &mut draft);
        let head = draft.head;
        let outcome = match outcome {
            Ok(value) => match self.connection.prepare_cached("COMMIT").and_then(|mut end| end.execute([])) {
                Ok(_) => Ok(value),
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error),
        };
        match outcome {
            Ok(value) => {
                if let Some(head) = head {
                    self.chain.head = head;
                }
                Ok(value)
            }
            Err(error) => {
                self.roll_back();
                Err(error)
            }
        }
    }

    /// Rolls back a transaction that an error or a panic left open. SQLite may have done so already.
    pub(crate) fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "could not roll back");
        }
    }
}

/// A transaction's view of the audit chain: its new head applies when it is committed.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) head: Option<Head>,
}
