//! How every connection is set up, and the writer: the one connection that changes things, with the
//! head of the audit chain it keeps in memory.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::audit::{Chain, Head};
use crate::error::StoreError;

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const CACHED_STATEMENTS: usize = 64;
/// Size the write-ahead log is cut back to when it starts over.
const KEPT_LOG_BYTES: i64 = 4 << 20;

/// Size of a page, as a power of two. A commit writes each page it touched to the log as a whole, and
/// most records are small, so small pages make every call a third faster than the usual 4 KiB do.
pub(crate) const PAGE_SHIFT: u32 = 10;

/// The database belongs to this process alone (the state directory is locked), so its connections agree
/// about locks in memory instead of asking the kernel a dozen times for every record.
const ONE_PROCESS: &str = "unix-excl";

/// Opens a connection. What a tampered schema could smuggle in (triggers, views) is switched off.
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

/// Settles how a connection writes: a log that is only flushed by the checkpointing thread.
pub(crate) fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    // Counts only while the database is still empty.
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

/// The connection that changes things.
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
                self.abandon();
                Err(error)
            }
        }
    }

    /// Ends a transaction that was left open, by an error or by a panic in the middle of it. SQLite may
    /// have ended it already.
    pub(crate) fn abandon(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "could not roll back");
        }
    }
}

/// A transaction's view of the audit chain: its new head counts only once it is committed.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) head: Option<Head>,
}
