//! Opening: privacy, the lock, and everything that must be refused without being touched.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::common::{fill_audit, raw, run, sandbox};
use isle_store::{RunFilter, Store, StoreError};
use sha2::{Digest, Sha256};

/// Size of a page of the database.
const PAGE: usize = 1024;

/// Every file but the lock and SQLite's scratch memory, with its length and the hash of its content.
fn contents(directory: &Path) -> BTreeMap<String, (usize, [u8; 32])> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| name != "isle.lock" && !name.ends_with("-shm"))
        .map(|(name, path)| {
            let bytes = fs::read(path).unwrap();
            (name, (bytes.len(), Sha256::digest(&bytes).into()))
        })
        .collect()
}

fn refused_untouched(directory: &Path) -> StoreError {
    let before = contents(directory);
    let error = Store::open(directory).unwrap_err();
    assert_eq!(before, contents(directory), "{error}");
    error
}

#[test]
fn the_directory_and_every_file_are_private() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("state/isle");
    let store = Store::open(&directory).unwrap();
    fill_audit(&store, 1);
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).unwrap().map(Result::unwrap) {
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["audit.key", "instance", "isle.db", "isle.db-wal", "isle.lock"]);
}

#[test]
fn a_directory_and_a_database_that_others_could_read_are_closed_to_them() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path()).unwrap());
    let database = directory.path().join("isle.db");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&database, fs::Permissions::from_mode(0o644)).unwrap();
    drop(Store::open(directory.path()).unwrap());
    assert_eq!(fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&database).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_shared_directory_is_refused_and_left_open() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(matches!(Store::open(directory.path()), Err(StoreError::UnsafeDirectory { .. })));
    assert_eq!(fs::metadata(directory.path()).unwrap().permissions().mode() & 0o7777, 0o1777);
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(matches!(Store::open(&file), Err(StoreError::UnsafeDirectory { .. })));
}

#[test]
fn a_link_in_place_of_the_lock_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("target");
    fs::write(&target, b"precious").unwrap();
    symlink(&target, directory.path().join("isle.lock")).unwrap();
    assert!(matches!(Store::open(directory.path()), Err(StoreError::Io { .. })));
    assert_eq!(fs::read(&target).unwrap(), b"precious");
}

#[test]
fn a_second_opener_is_told_who_has_it_and_gets_in_when_the_last_clone_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let clone = store.clone();
    let locked = |result: Result<Store, StoreError>| match result {
        Err(StoreError::Locked { pid }) => pid,
        other => panic!("{other:?}"),
    };
    assert_eq!(locked(Store::open(directory.path())), Some(std::process::id()));
    drop(store);
    assert_eq!(locked(Store::open(directory.path())), Some(std::process::id()));
    clone.set_value("still", "working").unwrap();
    drop(clone);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.get_value("still").unwrap().as_deref(), Some("working"));
}

#[test]
fn an_orderly_end_leaves_no_log_behind() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, 5);
    drop(store);
    assert_eq!(
        contents(directory.path()).keys().map(String::as_str).collect::<Vec<_>>(),
        ["audit.key", "instance", "isle.db"]
    );
}

#[test]
fn a_database_of_a_newer_version_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path()).unwrap());
    raw(directory.path()).pragma_update(None, "user_version", 99).unwrap();
    let error = refused_untouched(directory.path());
    assert!(matches!(error, StoreError::TooNew { found: 99, .. }), "{error:?}");
}

#[test]
fn a_newer_version_that_is_still_in_the_log_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path()).unwrap());
    let other = raw(directory.path());
    other.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    other.pragma_update(None, "user_version", 99).unwrap();
    drop(other);
    assert!(contents(directory.path())["isle.db-wal"].0 > 32);
    let error = refused_untouched(directory.path());
    assert!(matches!(error, StoreError::TooNew { found: 99, .. }), "{error:?}");
}

#[test]
fn a_file_that_is_no_database_is_refused_untouched() {
    for content in [&b"hello"[..], &[0; 4096][..], b"SQLite format 3\0", &[b'x'; 100_000]] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("isle.db"), content).unwrap();
        let error = refused_untouched(directory.path());
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    }
}

#[test]
fn a_database_of_another_program_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    raw(directory.path()).execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(matches!(refused_untouched(directory.path()), StoreError::Corrupt { .. }));
    raw(directory.path()).pragma_update(None, "user_version", 1).unwrap();
    assert!(matches!(refused_untouched(directory.path()), StoreError::Corrupt { .. }));
}

#[test]
fn a_damaged_database_is_refused_untouched_wherever_the_damage_is() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for count in 0..200 {
        store.begin_run(&run(&format!("run-{count}"), "default")).unwrap();
    }
    drop(store);
    let path = directory.path().join("isle.db");
    let good = fs::read(&path).unwrap();
    let pages = good.len() / PAGE;
    assert!(pages > 10);
    for page in 1..pages {
        let mut bad = good.clone();
        bad[page * PAGE..page * PAGE + 64].fill(0xa5);
        fs::write(&path, &bad).unwrap();
        let error = refused_untouched(directory.path());
        assert!(matches!(error, StoreError::Corrupt { .. }), "page {page}: {error:?}");
    }
    fs::write(&path, &good[..good.len() / 2]).unwrap();
    assert!(matches!(refused_untouched(directory.path()), StoreError::Corrupt { .. }));
    fs::write(&path, &good).unwrap();
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.runs(&RunFilter { limit: 1_000, ..RunFilter::default() }).unwrap().rows.len(), 200);
}

#[test]
fn a_database_that_was_emptied_is_not_taken_for_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.insert_sandbox(&sandbox("s1", Some("default"))).unwrap();
    drop(store);
    fs::write(directory.path().join("isle.db"), b"").unwrap();
    assert!(matches!(refused_untouched(directory.path()), StoreError::Corrupt { .. }));
}

#[test]
fn a_log_without_its_database_is_not_thrown_away() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("isle.db-wal"), [1; 8192]).unwrap();
    assert!(matches!(refused_untouched(directory.path()), StoreError::Corrupt { .. }));
}

#[test]
fn an_empty_file_left_by_a_crash_at_the_first_start_is_a_new_database() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("isle.db"), b"").unwrap();
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, 1);
    assert!(store.verify_audit().unwrap().is_intact());
}

#[test]
fn a_lock_that_outlives_its_holder_for_a_moment_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path()).unwrap());
    let path = directory.path().join("isle.lock");
    let mut dead = std::process::Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    fs::write(&path, dead.id().to_string()).unwrap();
    // As a child that was forked and is not yet a program of its own.
    let held = fs::File::open(&path).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let opening = std::thread::spawn({
        let directory = directory.path().to_owned();
        move || Store::open(&directory).map(drop)
    });
    // That it takes a while is what is tested.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!opening.is_finished());
    drop(held);
    opening.join().unwrap().unwrap();
}

/// A copy of a state directory as a crash leaves it: with a log.
fn crashed(from: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in ["isle.db", "isle.db-wal", "audit.key"] {
        fs::copy(from.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

#[test]
fn a_large_database_is_checked_after_a_crash_while_it_serves() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path()).unwrap());
    raw(directory.path())
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
             INSERT INTO events (id, time_ms, namespace, kind, message, data)
             SELECT i, i, 'default', 'run', hex(zeroblob(500)), '{}' FROM n",
        )
        .unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.set_value("there", "yes").unwrap();
    let (whole, damaged) = (crashed(directory.path()), crashed(directory.path()));
    let path = damaged.path().join("isle.db");
    let mut bytes = fs::read(&path).unwrap();
    assert!(bytes.len() > 16 << 20, "{} bytes", bytes.len());
    let middle = bytes.len() / 2 / PAGE * PAGE;
    bytes[middle..middle + PAGE].fill(0xa5);
    fs::write(&path, bytes).unwrap();

    // It opens at once, and stops writing as soon as it knows.
    let store = Store::open(damaged.path()).unwrap();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while store.damage().is_none() {
        assert!(std::time::Instant::now() < patience, "the damage was not found");
        std::thread::yield_now();
    }
    assert!(matches!(store.set_value("more", "no"), Err(StoreError::Corrupt { .. })));
    drop(store);

    let store = Store::open(whole.path()).unwrap();
    assert_eq!(store.get_value("there").unwrap().as_deref(), Some("yes"));
    store.set_value("more", "yes").unwrap();
    assert_eq!(store.damage(), None);
}
