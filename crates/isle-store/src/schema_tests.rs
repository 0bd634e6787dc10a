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
fn runs_of_the_first_version_have_no_limits_recorded() {
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
fn records_of_the_fifteenth_version_are_listed_by_the_indexes_that_came_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("isle.db");
    let mut connection = Connection::open(&path).unwrap();
    migrate(&mut connection, &path, &MIGRATIONS[..15]).unwrap();
    connection
            .execute_batch(
                "INSERT INTO runs (id, sandbox_id, door, actor, kind, command, started_at_ms, state, stdout_bytes,
                     stderr_bytes, violations, namespace)
                 VALUES ('r', 's', 'cli', 'me', 'job', 'true', 1, 'failed', 0, 0, '[]', 'acme');
                 INSERT INTO audit (seq, time_ms, actor, door, action, detail, prev_hash, hash, namespace)
                 VALUES (1, 1, 'me', 'cli', 'exec', '{}', x'00', x'00', 'acme'),
                     (2, 1, 'me', 'cli', 'exec', '{}', x'00', x'00', NULL);",
            )
            .unwrap();
    assert!(migrate(&mut connection, &path, MIGRATIONS).unwrap());
    let plan = |text: &str| -> String {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    for (text, index) in [
        ("SELECT seq FROM audit WHERE namespace = 'acme' ORDER BY seq DESC", "audit_namespace"),
        (
            "SELECT seq FROM runs WHERE namespace = 'acme' AND namespace <> 'default' ORDER BY seq DESC",
            "runs_namespace",
        ),
        ("SELECT seq FROM runs WHERE kind = 'job' AND namespace = 'acme' ORDER BY seq DESC", "runs_kind_job"),
        ("SELECT id FROM events WHERE namespace = 'acme' ORDER BY id DESC", "events_namespace"),
    ] {
        let plan = plan(text);
        assert!(plan.contains(index) && !plan.contains("SCAN") && !plan.contains("TEMP"), "{text}: {plan}");
        assert!(connection.prepare(text).unwrap().query([]).unwrap().next().is_ok());
    }
    let found: i64 = connection
        .query_row("SELECT count(*) FROM audit WHERE namespace = 'acme'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(found, 1);
}

#[test]
fn a_failed_migration_changes_nothing() {
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
