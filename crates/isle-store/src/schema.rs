//! The database schema and its migrations. All migrations of an upgrade are one transaction; an existing
//! database is backed up first.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::files;

/// The `application_id` in the file's header: `ISLE`.
pub(crate) const APPLICATION_ID: i32 = 0x4953_4c45;

/// Index `n` migrates from version `n` to `n + 1`. Never edit a released migration; add another.
pub(crate) const MIGRATIONS: &[&str] =
    &[V1, V2, V3, V4, V5, V6, V7, V8, V9, V10, V11, V12, V13, V14, V15, V16, V17];

// Every index is another page to write for each run, so there is one only where a scan would be long: old
// runs are deleted, so unfinished ones are found by a full scan, and the rows of one sandbox or one action by
// a scan from the newest row. Runs have an integer key, so that rows, indexes and outputs are all appended at
// the end; the text id has a unique index. Outputs are in a separate table, so that listing runs does not
// read them. The audit table has no foreign keys: it must outlive everything it refers to.
const V1: &str = "
CREATE TABLE facts (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sandboxes (
    id TEXT PRIMARY KEY,
    name TEXT,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    spec TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    anchor TEXT NOT NULL,
    containment TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    last_used_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (name)
    WHERE name IS NOT NULL AND state IN ('creating', 'running');

CREATE TABLE runs (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    sandbox_id TEXT NOT NULL,
    sandbox_name TEXT,
    door TEXT NOT NULL,
    actor TEXT NOT NULL,
    kind TEXT NOT NULL,
    command TEXT NOT NULL,
    started_at_ms INTEGER NOT NULL,
    state TEXT NOT NULL,
    exit_code INTEGER,
    signal INTEGER,
    duration_ms INTEGER,
    cpu_us INTEGER,
    peak_rss_kib INTEGER,
    stdout_bytes INTEGER NOT NULL,
    stderr_bytes INTEGER NOT NULL,
    ended_at_ms INTEGER,
    note TEXT,
    violations TEXT NOT NULL
) STRICT;

CREATE TABLE run_outputs (
    run_seq INTEGER PRIMARY KEY REFERENCES runs (seq) ON DELETE CASCADE,
    stdout_head BLOB NOT NULL,
    stdout_tail BLOB NOT NULL,
    stderr_head BLOB NOT NULL,
    stderr_tail BLOB NOT NULL
) STRICT;

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    door TEXT NOT NULL,
    action TEXT NOT NULL,
    sandbox TEXT,
    run TEXT,
    detail TEXT NOT NULL,
    prev_hash BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;

CREATE TABLE audit_head (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    taint TEXT,
    mac BLOB NOT NULL
) STRICT;
";

const V2: &str = "
ALTER TABLE runs ADD COLUMN limits_hit TEXT NOT NULL DEFAULT '[]';
";

const V3: &str = "
ALTER TABLE runs ADD COLUMN containment TEXT;
";

// By name and not by id: like the workspace, they belong to every sandbox of that name.
const V4: &str = "
CREATE TABLE variables (
    sandbox TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (sandbox, name)
) STRICT, WITHOUT ROWID;
";

// A name refers to the newest run that has it, and only one unfinished run may have it. Both indexes contain
// named runs only, so all others cost nothing.
const V5: &str = "
ALTER TABLE runs ADD COLUMN job TEXT;
ALTER TABLE runs ADD COLUMN locked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN terminal INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN commands TEXT;
CREATE INDEX runs_job ON runs (job, sandbox_name) WHERE job IS NOT NULL;
CREATE UNIQUE INDEX runs_open_job ON runs (sandbox_name, job)
    WHERE job IS NOT NULL AND state IN ('queued', 'running');
";

// Namespaces. Variables need no column: their sandbox is an address, which includes the namespace unless it
// is `default`. Audit rows of `default` have none, so that every older row keeps its hash.
const V6: &str = "
ALTER TABLE sandboxes ADD COLUMN namespace TEXT NOT NULL DEFAULT 'default';
ALTER TABLE runs ADD COLUMN namespace TEXT NOT NULL DEFAULT 'default';
ALTER TABLE audit ADD COLUMN namespace TEXT;
DROP INDEX sandboxes_live_name;
CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (namespace, name)
    WHERE name IS NOT NULL AND state IN ('creating', 'running');
DROP INDEX runs_job;
CREATE INDEX runs_job ON runs (job, namespace, sandbox_name) WHERE job IS NOT NULL;
DROP INDEX runs_open_job;
CREATE UNIQUE INDEX runs_open_job ON runs (namespace, sandbox_name, job)
    WHERE job IS NOT NULL AND state IN ('queued', 'running');

CREATE TABLE namespaces (
    name TEXT PRIMARY KEY,
    created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    namespace TEXT NOT NULL REFERENCES namespaces (name),
    hash BLOB NOT NULL UNIQUE,
    created_at_ms INTEGER NOT NULL,
    last_used_ms INTEGER
) STRICT, WITHOUT ROWID;
";

// No index: listings scan from the newest, and the number of events is bounded.
const V7: &str = "
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    sandbox TEXT,
    run TEXT,
    message TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
";

// Deadlines and pause state of a sandbox, in the engine's format.
const V8: &str = "
ALTER TABLE sandboxes ADD COLUMN lease TEXT;
";

// How many children a sandbox ever had, by its address: recreating a sandbox does not reset the count.
const V9: &str = "
CREATE TABLE spawns (
    sandbox TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

// Live syncs, in the engine's format.
const V10: &str = "
CREATE TABLE syncs (
    id TEXT PRIMARY KEY,
    sandbox_id TEXT NOT NULL,
    definition TEXT NOT NULL,
    started_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

// Network grants of all sandboxes of a namespace, in the engine's format.
const V11: &str = "
CREATE TABLE namespace_grants (
    namespace TEXT PRIMARY KEY,
    grants TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

// Values are encrypted by the caller. The sandbox of a use is an address: the contents of a workspace outlive
// the sandbox.
const V12: &str = "
CREATE TABLE secrets (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    nonce BLOB NOT NULL,
    sealed BLOB NOT NULL,
    hosts TEXT NOT NULL,
    expires_at_ms INTEGER,
    set_at_ms INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE secret_uses (
    sandbox TEXT NOT NULL,
    name TEXT NOT NULL,
    placeholder TEXT NOT NULL,
    variable TEXT,
    exposed INTEGER NOT NULL,
    ever_exposed INTEGER NOT NULL,
    runs TEXT NOT NULL,
    PRIMARY KEY (sandbox, name)
) STRICT, WITHOUT ROWID;
";

// The signing secret of a webhook is not stored; see `webhooks.rs`.
const V13: &str = "
CREATE TABLE webhooks (
    id TEXT PRIMARY KEY,
    namespace TEXT,
    definition TEXT NOT NULL,
    hash BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL,
    place INTEGER NOT NULL,
    lost INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

// Disk I/O of runs; unknown for older ones.
const V14: &str = "
ALTER TABLE runs ADD COLUMN io_read_bytes INTEGER;
ALTER TABLE runs ADD COLUMN io_write_bytes INTEGER;
";

// Network traffic during runs, and their number of processes; unknown for older ones.
const V15: &str = "
ALTER TABLE runs ADD COLUMN net_sent_bytes INTEGER;
ALTER TABLE runs ADD COLUMN net_received_bytes INTEGER;
ALTER TABLE runs ADD COLUMN net_connections INTEGER;
ALTER TABLE runs ADD COLUMN net_denied INTEGER;
ALTER TABLE runs ADD COLUMN net_shared INTEGER;
ALTER TABLE runs ADD COLUMN peak_tasks INTEGER;
";

// Pending wipes; see `wipes.rs`.
const V16: &str = "
CREATE TABLE wipes (
    sandbox TEXT PRIMARY KEY,
    what TEXT NOT NULL,
    asked_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

// So that listings of one tenant do not scan the rows of all others. Partial, so that the runs of `default`
// cost no additional page; jobs are rare and indexed anyway. Events are written in batches.
const V17: &str = "
CREATE INDEX audit_namespace ON audit (namespace) WHERE namespace IS NOT NULL;
CREATE INDEX runs_namespace ON runs (namespace) WHERE namespace <> 'default';
CREATE INDEX runs_kind_job ON runs (namespace) WHERE kind = 'job';
CREATE INDEX events_namespace ON events (namespace);
";

/// The newest version of a list of migrations.
pub(crate) fn newest(migrations: &[&str]) -> u32 {
    u32::try_from(migrations.len()).unwrap_or(u32::MAX)
}

/// The version of a database.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Migrates the database to the newest version. Returns whether anything was done.
pub(crate) fn migrate(
    connection: &mut Connection,
    path: &Path,
    migrations: &[&str],
) -> Result<bool, StoreError> {
    let found = version(connection)?;
    let known = newest(migrations);
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    if found == known {
        return Ok(false);
    }
    if found > 0 {
        back_up(connection, path, found)?;
    }
    let transaction = connection.transaction()?;
    for (step, migration) in (0u32..).zip(migrations) {
        if step >= found {
            transaction.execute_batch(migration)?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(true)
}

/// The path of the backup before a migration.
pub(crate) fn backup_path(path: &Path, version: u32) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".v{version}.bak"));
    path.with_file_name(name)
}

fn back_up(connection: &Connection, path: &Path, version: u32) -> Result<(), StoreError> {
    let backup = backup_path(path, version);
    let unfinished = backup.with_extension("unfinished");
    match std::fs::remove_file(&unfinished) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::io("remove", &unfinished, error)),
    }
    // SQLite keeps the mode of an existing empty file; one it creates would be readable by others.
    files::private_file(&unfinished)?;
    let Some(target) = unfinished.to_str() else {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, "the path is not UTF-8");
        return Err(StoreError::io("back up to", &unfinished, error));
    };
    connection.execute("VACUUM INTO ?1", params![target])?;
    std::fs::File::open(&unfinished)
        .and_then(|file| file.sync_all())
        .map_err(|error| StoreError::io("flush", &unfinished, error))?;
    files::rename_synced(&unfinished, &backup)
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
