//! The shape of the database and how an older one becomes the present one. Each migration is one
//! transaction; before an existing database is changed, a copy of it is set aside.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::files;

/// Stamp in the file's header: `ISLE`.
pub(crate) const APPLICATION_ID: i32 = 0x4953_4c45;

/// Position `n` leads from version `n` to `n + 1`. Never edit one that was released; add another.
pub(crate) const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6, V7, V8, V9, V10, V11, V12, V13, V14, V15];

// Every index is a page more to write for each run, so there is one only where a search would be long:
// old runs are forgotten, so those that have not ended are found by looking at all, and what one sandbox
// did, or one action, is found by walking back from the newest row. Runs are numbered by an integer so that
// rows, indexes and outputs are all appended at their hot end; the text id is one unique index beside
// it. Outputs live apart so that listing runs never walks over them. The audit table has no foreign
// keys: it must outlive everything it speaks of.
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

// By name and not by id: they are for every sandbox that has the name, as its workspace is.
const V4: &str = "
CREATE TABLE variables (
    sandbox TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (sandbox, name)
) STRICT, WITHOUT ROWID;
";

// A name means the newest run that has it, and only one that has not ended may have it. Both indexes
// hold named runs only, so all others cost nothing.
const V5: &str = "
ALTER TABLE runs ADD COLUMN job TEXT;
ALTER TABLE runs ADD COLUMN locked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN terminal INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN commands TEXT;
CREATE INDEX runs_job ON runs (job, sandbox_name) WHERE job IS NOT NULL;
CREATE UNIQUE INDEX runs_open_job ON runs (sandbox_name, job)
    WHERE job IS NOT NULL AND state IN ('queued', 'running');
";

// Whose a record is. Variables need no column: their sandbox is an address, which has the namespace in it
// unless it is `default`. Audit rows of `default` say nothing, so that every older row keeps its hash.
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

// No index: what is listed is found by walking back from the newest, and there are only so many.
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

// How long a sandbox may live yet, whether it is paused: the engine's affair, as one value.
const V8: &str = "
ALTER TABLE sandboxes ADD COLUMN lease TEXT;
";

// How many children a sandbox ever had, by its address: a sandbox made anew does not begin at nothing.
const V9: &str = "
CREATE TABLE spawns (
    sandbox TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

// What live syncs do is the engine's affair, as one value.
const V10: &str = "
CREATE TABLE syncs (
    id TEXT PRIMARY KEY,
    sandbox_id TEXT NOT NULL,
    definition TEXT NOT NULL,
    started_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

// What every sandbox of a namespace may reach: the engine's affair, as one value.
const V11: &str = "
CREATE TABLE namespace_grants (
    namespace TEXT PRIMARY KEY,
    grants TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

// Values are sealed before they come here. The sandbox of a use is an address: what a workspace holds
// outlives the sandbox that had it.
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

// What a webhook is signed with is not here; see `webhooks.rs`.
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

// What runs moved from and to disks; not known of those before.
const V14: &str = "
ALTER TABLE runs ADD COLUMN io_read_bytes INTEGER;
ALTER TABLE runs ADD COLUMN io_write_bytes INTEGER;
";

// What went through the gate while runs went on, and how many processes they had; not known of those before.
const V15: &str = "
ALTER TABLE runs ADD COLUMN net_sent_bytes INTEGER;
ALTER TABLE runs ADD COLUMN net_received_bytes INTEGER;
ALTER TABLE runs ADD COLUMN net_connections INTEGER;
ALTER TABLE runs ADD COLUMN net_denied INTEGER;
ALTER TABLE runs ADD COLUMN net_shared INTEGER;
ALTER TABLE runs ADD COLUMN peak_tasks INTEGER;
";

/// The newest version a list of migrations leads to.
pub(crate) fn newest(migrations: &[&str]) -> u32 {
    u32::try_from(migrations.len()).unwrap_or(u32::MAX)
}

/// The version a database is at.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Brings the database to the newest version. Whether anything was done is the answer.
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

/// Where the copy made before leaving a version goes.
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
    // SQLite fills an empty file and keeps its mode; one it made itself would be readable by others.
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
mod tests {
    use super::*;

    const NEXT: &str = "ALTER TABLE facts ADD COLUMN added_by_the_next_version TEXT;";

    fn table_has_new_column(path: &Path) -> bool {
        let connection = Connection::open(path).unwrap();
        connection.prepare("SELECT added_by_the_next_version FROM facts").is_ok()
    }

    #[test]
    fn an_older_database_is_copied_before_it_is_migrated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("isle.db");
        let mut connection = Connection::open(&path).unwrap();
        assert!(migrate(&mut connection, &path, MIGRATIONS).unwrap());
        connection.execute("INSERT INTO facts VALUES ('kept', 'yes')", []).unwrap();

        let longer = [MIGRATIONS, &[NEXT]].concat();
        assert!(migrate(&mut connection, &path, &longer).unwrap());
        assert_eq!(version(&connection).unwrap(), newest(&longer));
        assert!(table_has_new_column(&path));

        let backup = backup_path(&path, newest(MIGRATIONS));
        assert_eq!(backup.file_name().unwrap(), &*format!("isle.db.v{}.bak", newest(MIGRATIONS)));
        assert!(!table_has_new_column(&backup));
        let copy = Connection::open(&backup).unwrap();
        assert_eq!(version(&copy).unwrap(), newest(MIGRATIONS));
        let kept: String =
            copy.query_row("SELECT value FROM facts WHERE key = 'kept'", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, "yes");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn runs_of_the_first_version_met_no_limit_that_anybody_wrote_down() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("isle.db");
        let mut connection = Connection::open(&path).unwrap();
        migrate(&mut connection, &path, &MIGRATIONS[..1]).unwrap();
        let row = "INSERT INTO runs (id, sandbox_id, door, actor, kind, command, started_at_ms, state,
             stdout_bytes, stderr_bytes, violations) VALUES ('r', 's', 'cli', 'me', 'exec', 'true', 1, 'failed',
             0, 0, '[]')";
        connection.execute(row, []).unwrap();
        assert!(migrate(&mut connection, &path, MIGRATIONS).unwrap());
        let met: String =
            connection.query_row("SELECT limits_hit FROM runs WHERE id = 'r'", [], |row| row.get(0)).unwrap();
        assert_eq!(met, "[]");
    }

    #[test]
    fn a_migration_that_fails_half_way_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("isle.db");
        let mut connection = Connection::open(&path).unwrap();
        migrate(&mut connection, &path, MIGRATIONS).unwrap();
        let broken = [MIGRATIONS, &[NEXT, "ALTER TABLE nowhere ADD COLUMN x TEXT;"]].concat();
        assert!(migrate(&mut connection, &path, &broken).is_err());
        assert_eq!(version(&connection).unwrap(), newest(MIGRATIONS));
        assert!(!table_has_new_column(&path));
    }

    #[test]
    fn a_fresh_or_current_database_makes_no_copy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("isle.db");
        let mut connection = Connection::open(&path).unwrap();
        assert!(migrate(&mut connection, &path, MIGRATIONS).unwrap());
        assert!(!migrate(&mut connection, &path, MIGRATIONS).unwrap());
        let copies = std::fs::read_dir(directory.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(".bak"))
            .count();
        assert_eq!(copies, 0);
    }
}
