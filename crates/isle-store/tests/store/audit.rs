//! The audit chain: what it records, and that no way of editing the database goes unseen.

use std::path::Path;

use crate::common::{end, entry, fill_audit, raw, run};
use isle_store::{
    AuditEntry, AuditFault, AuditFilter, AuditKey, AuditProblem, AuditVerdict, Store, StoreError,
};
use sha2::{Digest, Sha256};

const ROWS: u64 = 9;

/// Fills a chain, lets `tamper` at the database both beside the running store and while it is closed,
/// and asserts that the same fault is found either way, and still after the chain has gone on.
fn tampering_is_found(tamper: impl Fn(&Path), fault: AuditFault) {
    for while_running in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        fill_audit(&store, ROWS);
        assert!(store.verify_audit().unwrap().is_intact());
        if while_running {
            tamper(directory.path());
        } else {
            drop(store);
            tamper(directory.path());
            store = Store::open(directory.path()).unwrap();
        }
        assert_eq!(store.verify_audit().unwrap().fault, Some(fault.clone()), "running: {while_running}");
        let last: u64 = raw(directory.path())
            .query_row("SELECT coalesce(max(seq), 0) FROM audit", [], |row| row.get::<_, i64>(0))
            .unwrap()
            .cast_unsigned();
        if while_running && last > ROWS {
            // The place of the next row is taken; nothing is appended over it.
            assert!(store.append_audit(&entry("exec", "default")).is_err());
        } else {
            fill_audit(&store, 3);
        }
        let after = store.verify_audit().unwrap().fault.unwrap();
        assert!(after.seq <= fault.seq + 1, "{after:?} after {fault:?}, running: {while_running}");
        drop(store);
        let reopened = Store::open(directory.path()).unwrap();
        assert!(!reopened.verify_audit().unwrap().is_intact());
    }
}

fn by_sql(text: &'static str) -> impl Fn(&Path) {
    move |directory| raw(directory).execute_batch(text).unwrap()
}

fn fault(seq: u64, problem: AuditProblem) -> AuditFault {
    AuditFault { seq, problem }
}

/// The hash of a row, worked out here from its description and not by the code under test.
fn rehash(connection: &rusqlite::Connection, seq: i64) {
    connection
        .query_row("SELECT * FROM audit WHERE seq = ?1", [seq], |row| {
            let mut bytes = Vec::new();
            let text = |value: &[u8], bytes: &mut Vec<u8>| {
                bytes.extend((value.len() as u64).to_be_bytes());
                bytes.extend(value);
            };
            text(b"isle audit row 1", &mut bytes);
            bytes.extend(seq.to_be_bytes());
            bytes.extend(row.get::<_, i64>("time_ms")?.to_be_bytes());
            for column in ["actor", "door", "action"] {
                text(row.get::<_, String>(column)?.as_bytes(), &mut bytes);
            }
            for column in ["sandbox", "run"] {
                match row.get::<_, Option<String>>(column)? {
                    None => bytes.push(0),
                    Some(value) => {
                        bytes.push(1);
                        text(value.as_bytes(), &mut bytes);
                    }
                }
            }
            text(row.get::<_, String>("detail")?.as_bytes(), &mut bytes);
            text(&row.get::<_, Vec<u8>>("prev_hash")?, &mut bytes);
            let hash: [u8; 32] = Sha256::digest(&bytes).into();
            connection.execute("UPDATE audit SET hash = ?2 WHERE seq = ?1", rusqlite::params![seq, hash])
        })
        .unwrap();
}

/// Makes the rows from `first` on fit one another.
fn rechain(connection: &rusqlite::Connection, first: i64) {
    let last: i64 = connection.query_row("SELECT max(seq) FROM audit", [], |row| row.get(0)).unwrap();
    for seq in first..=last {
        connection
            .execute(
                "UPDATE audit SET prev_hash = coalesce((SELECT hash FROM audit WHERE seq = ?1 - 1), zeroblob(32))
                 WHERE seq = ?1",
                [seq],
            )
            .unwrap();
        rehash(connection, seq);
    }
}

#[test]
fn every_field_is_covered_by_the_hash() {
    for change in [
        "time_ms = time_ms + 1",
        "actor = 'someone else'",
        "door = 'http'",
        "action = 'read_file'",
        "sandbox = NULL",
        "sandbox = 'other'",
        "run = ''",
        "detail = '{\"command\":\"echo hell\"}'",
        "hash = zeroblob(32)",
        "hash = x'00'",
        "prev_hash = zeroblob(32)",
    ] {
        let text = format!("UPDATE audit SET {change} WHERE seq = 4");
        let tamper = |directory: &Path| raw(directory).execute_batch(&text).unwrap();
        tampering_is_found(tamper, fault(4, AuditProblem::Edited));
    }
}

#[test]
fn a_removed_row_is_found_wherever_it_was() {
    tampering_is_found(by_sql("DELETE FROM audit WHERE seq = 1"), fault(1, AuditProblem::Removed));
    tampering_is_found(by_sql("DELETE FROM audit WHERE seq = 5"), fault(5, AuditProblem::Removed));
    tampering_is_found(by_sql("DELETE FROM audit WHERE seq IN (5, 6)"), fault(5, AuditProblem::Removed));
    tampering_is_found(by_sql("DELETE FROM audit WHERE seq = 9"), fault(9, AuditProblem::Removed));
    tampering_is_found(by_sql("DELETE FROM audit WHERE seq > 6"), fault(7, AuditProblem::Removed));
    tampering_is_found(by_sql("DELETE FROM audit"), fault(1, AuditProblem::Removed));
}

#[test]
fn a_removed_row_is_found_when_the_gap_was_closed() {
    let text = "DELETE FROM audit WHERE seq = 5; UPDATE audit SET seq = seq - 1 WHERE seq > 5";
    tampering_is_found(by_sql(text), fault(5, AuditProblem::Removed));
}

#[test]
fn reordered_rows_are_found() {
    let swap = "UPDATE audit SET seq = 100 WHERE seq = 3;
                UPDATE audit SET seq = 3 WHERE seq = 4;
                UPDATE audit SET seq = 4 WHERE seq = 100";
    tampering_is_found(by_sql(swap), fault(3, AuditProblem::Reordered { written_as: 4 }));
    let far = "UPDATE audit SET seq = 100 WHERE seq = 2;
               UPDATE audit SET seq = 2 WHERE seq = 8;
               UPDATE audit SET seq = 8 WHERE seq = 100";
    tampering_is_found(by_sql(far), fault(2, AuditProblem::Reordered { written_as: 8 }));
}

#[test]
fn an_inserted_row_is_found_in_the_middle() {
    let make_room =
        "UPDATE audit SET seq = -seq - 1 WHERE seq >= 5; UPDATE audit SET seq = -seq WHERE seq < 0;
         INSERT INTO audit SELECT 5, time_ms, actor, door, 'planted', sandbox, run, detail, prev_hash, hash, NULL
         FROM audit WHERE seq = 4;
         UPDATE audit SET prev_hash = (SELECT hash FROM audit WHERE seq = 4) WHERE seq = 5";
    tampering_is_found(by_sql(make_room), fault(5, AuditProblem::Inserted));
    let with_a_good_hash = |directory: &Path| {
        let connection = raw(directory);
        connection.execute_batch(make_room).unwrap();
        rehash(&connection, 5);
    };
    tampering_is_found(with_a_good_hash, fault(5, AuditProblem::Inserted));
}

#[test]
fn an_inserted_row_is_found_at_the_end_and_before_the_first() {
    let at_the_end = |directory: &Path| {
        let connection = raw(directory);
        connection
            .execute_batch(
                "INSERT INTO audit SELECT 10, time_ms, actor, door, 'planted', sandbox, run, detail, hash, hash, NULL
                 FROM audit WHERE seq = 9",
            )
            .unwrap();
        rehash(&connection, 10);
    };
    tampering_is_found(at_the_end, fault(10, AuditProblem::Inserted));
    let before_the_first =
        "INSERT INTO audit SELECT 0, time_ms, actor, door, 'planted', sandbox, run, detail,
         prev_hash, hash, NULL FROM audit WHERE seq = 1";
    tampering_is_found(by_sql(before_the_first), fault(0, AuditProblem::Inserted));
}

#[test]
fn a_row_edited_with_a_new_hash_is_found_by_its_neighbour() {
    let tamper = |directory: &Path| {
        let connection = raw(directory);
        connection.execute_batch("UPDATE audit SET action = 'harmless' WHERE seq = 4").unwrap();
        rehash(&connection, 4);
    };
    tampering_is_found(tamper, fault(4, AuditProblem::Edited));
}

#[test]
fn a_chain_rewritten_from_the_edit_to_its_end_is_found_by_the_head() {
    let tamper = |directory: &Path| {
        let connection = raw(directory);
        connection.execute_batch("UPDATE audit SET action = 'harmless' WHERE seq = 4").unwrap();
        rechain(&connection, 4);
    };
    tampering_is_found(tamper, fault(ROWS, AuditProblem::Rewritten));
}

/// What a forger without the key can do at best: rows that fit one another, and a head that fits them.
fn forge(directory: &Path) {
    let connection = raw(directory);
    connection
        .execute_batch("DELETE FROM audit WHERE seq > 6; UPDATE audit SET action = 'harmless' WHERE seq = 4")
        .unwrap();
    rechain(&connection, 4);
    connection
        .execute_batch(
            "UPDATE audit_head SET seq = 6, hash = (SELECT hash FROM audit WHERE seq = 6), taint = NULL",
        )
        .unwrap();
}

#[test]
fn a_head_forged_without_the_key_is_found_and_stays_found_after_the_chain_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, ROWS);
    drop(store);
    forge(directory.path());
    let expected = Some(fault(6, AuditProblem::HeadForged));
    for _ in 0..3 {
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(store.verify_audit().unwrap().fault, expected);
        fill_audit(&store, 2);
        assert_eq!(store.verify_audit().unwrap().fault, expected);
    }
}

#[test]
fn a_head_forged_beside_a_running_store_does_not_deceive_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, ROWS);
    forge(directory.path());
    // The store remembers that there were nine.
    assert_eq!(store.verify_audit().unwrap().fault, Some(fault(7, AuditProblem::Removed)));
}

#[test]
fn a_removed_head_is_found_and_stays_found() {
    for wipe in ["DELETE FROM audit_head", "DELETE FROM audit_head; DELETE FROM audit"] {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        fill_audit(&store, ROWS);
        drop(store);
        raw(directory.path()).execute_batch(wipe).unwrap();
        for _ in 0..2 {
            let store = Store::open(directory.path()).unwrap();
            fill_audit(&store, 1);
            assert_eq!(store.verify_audit().unwrap().fault.unwrap().problem, AuditProblem::HeadMissing);
        }
    }
}

#[test]
fn a_database_that_was_deleted_is_missed_because_its_key_is_still_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, ROWS);
    drop(store);
    std::fs::remove_file(directory.path().join("isle.db")).unwrap();
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.verify_audit().unwrap().fault, Some(fault(0, AuditProblem::HeadMissing)));
}

#[test]
fn the_verdict_says_when_the_key_is_missing_or_changed() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("audit.key");
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, ROWS);
    let good = std::fs::read(&key).unwrap();

    std::fs::remove_file(&key).unwrap();
    let verdict = store.verify_audit().unwrap();
    assert_eq!(verdict.key, AuditKey::Missing);
    assert_eq!(verdict.fault, Some(fault(ROWS, AuditProblem::KeyMissing)));
    std::fs::write(&key, [7; 32]).unwrap();
    let verdict = store.verify_audit().unwrap();
    assert_eq!(verdict.key, AuditKey::Changed);
    assert_eq!(verdict.fault, Some(fault(ROWS, AuditProblem::KeyChanged)));
    std::fs::write(&key, good).unwrap();
    assert!(store.verify_audit().unwrap().is_intact());

    drop(store);
    std::fs::remove_file(&key).unwrap();
    for _ in 0..2 {
        let store = Store::open(directory.path()).unwrap();
        fill_audit(&store, 1);
        let verdict = store.verify_audit().unwrap();
        assert_eq!(verdict.fault, Some(fault(ROWS, AuditProblem::KeyMissing)));
        assert_eq!(
            verdict.to_string(),
            "the audit chain is broken: the key file was missing: the first 9 rows cannot be verified"
        );
    }
}

#[test]
fn a_key_of_the_wrong_length_is_refused_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path()).unwrap());
    let key = directory.path().join("audit.key");
    std::fs::write(&key, b"short").unwrap();
    assert!(matches!(Store::open(directory.path()), Err(StoreError::Corrupt { path, .. }) if path == key));
    assert_eq!(std::fs::read(&key).unwrap(), b"short");
}

#[test]
fn a_trigger_planted_in_the_database_never_fires() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, 1);
    drop(store);
    raw(directory.path())
        .execute_batch(
            "CREATE TRIGGER planted AFTER INSERT ON audit BEGIN DELETE FROM audit WHERE seq = new.seq; END",
        )
        .unwrap();
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, 2);
    assert_eq!(store.audit(&AuditFilter::default()).unwrap().rows.len(), 3);
    assert!(store.verify_audit().unwrap().is_intact());
}

#[test]
fn an_empty_chain_is_intact_and_so_is_one_that_was_reopened() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let store = Store::open(directory.path()).unwrap();
        let AuditVerdict { rows, key, fault, .. } = store.verify_audit().unwrap();
        assert_eq!((rows, key, fault), (round * 2, AuditKey::Present, None));
        fill_audit(&store, 2);
    }
}

#[test]
fn listing_is_newest_first_and_filters_by_action_sandbox_and_place() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for (action, sandbox) in [("exec", "a"), ("exec", "b"), ("destroy", "a"), ("exec", "a")] {
        store.append_audit(&entry(action, sandbox)).unwrap();
    }
    let places = |filter: AuditFilter| -> Vec<u64> {
        store.audit(&filter).unwrap().rows.iter().map(|row| row.seq).collect()
    };
    let all = AuditFilter::default;
    assert_eq!(places(all()), [4, 3, 2, 1]);
    assert_eq!(places(AuditFilter { action: Some("exec".into()), ..all() }), [4, 2, 1]);
    assert_eq!(places(AuditFilter { sandbox: Some("a".into()), ..all() }), [4, 3, 1]);
    assert_eq!(
        places(AuditFilter {
            sandbox: Some("a".into()),
            action: Some("exec".into()),
            before: Some(4),
            ..all()
        }),
        [1]
    );
    assert_eq!(places(AuditFilter { limit: 2, before: Some(4), ..all() }), [3, 2]);
    let rows = store.audit(&all()).unwrap().rows;
    assert_eq!(rows[0].prev_hash, rows[1].hash);
    assert_eq!(rows[3].prev_hash, "0".repeat(64));
    assert_eq!(rows[3].detail, entry("exec", "a").detail);
    for limit in [0, 501] {
        assert!(matches!(
            store.audit(&AuditFilter { limit, ..all() }),
            Err(StoreError::LimitOutOfRange { max: 500, .. })
        ));
    }
}

#[test]
fn writers_on_eight_threads_keep_the_chain_dense() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = store.clone();
            scope.spawn(move || {
                for count in 0..40 {
                    let id = format!("run-{thread}-{count}");
                    store.begin_run(&run(&id, "default")).unwrap();
                    let audit = AuditEntry { run: Some(id.clone()), ..entry("exec", "default") };
                    store.finish_run(&id, &end("completed"), &audit).unwrap();
                    store.append_audit(&entry("note", "default")).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..5 {
                assert!(store.verify_audit().unwrap().is_intact());
            }
        });
    });
    let verdict = store.verify_audit().unwrap();
    assert_eq!((verdict.rows, verdict.fault), (640, None));
    assert!(store.unfinished_runs().unwrap().is_empty());
}

#[test]
fn rows_of_a_namespace_are_listed_apart_and_cannot_change_hands_unseen() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.append_audit(&entry("exec", "a")).unwrap();
    store.append_audit(&AuditEntry { namespace: Some("one".into()), ..entry("exec", "a") }).unwrap();
    store.append_audit(&AuditEntry { namespace: Some("two".into()), ..entry("exec", "a") }).unwrap();
    let places = |namespace: &str| -> Vec<u64> {
        let filter = AuditFilter { namespace: Some(namespace.into()), ..AuditFilter::default() };
        store.audit(&filter).unwrap().rows.iter().map(|row| row.seq).collect()
    };
    assert_eq!((places("default"), places("one"), places("two")), (vec![1], vec![2], vec![3]));
    assert!(store.verify_audit().unwrap().is_intact());
    drop(store);
    for (seq, whose) in [(1, "'one'"), (2, "NULL"), (3, "'one'")] {
        let path = directory.path().join("isle.db");
        let original = std::fs::read(&path).unwrap();
        let connection = raw(directory.path());
        connection.execute(&format!("UPDATE audit SET namespace = {whose} WHERE seq = {seq}"), []).unwrap();
        drop(connection);
        let store = Store::open(directory.path()).unwrap();
        let verdict = store.verify_audit().unwrap();
        assert_eq!(verdict.fault.map(|fault| fault.seq), Some(seq), "row {seq}");
        drop(store);
        std::fs::write(&path, original).unwrap();
    }
}

#[test]
fn a_check_of_new_rows_begins_where_the_last_good_one_ended() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, 20);
    // Without an earlier check everything is new.
    assert_eq!(store.verify_new_audit().unwrap().checked, 20);
    fill_audit(&store, 5);
    let verdict = store.verify_new_audit().unwrap();
    assert!(verdict.is_intact());
    assert_eq!((verdict.rows, verdict.checked), (25, 5));
    assert_eq!(store.verify_audit().unwrap().checked, 25);
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, 2);
    assert_eq!(store.verify_new_audit().unwrap().checked, 2, "also after a restart");

    // A mark that was moved without the key counts for nothing.
    let mark = |text: &str| store.set_value("audit_verified", text).unwrap();
    let sealed = store.get_value("audit_verified").unwrap().unwrap();
    mark(&sealed.replacen("27", "26", 1));
    assert_eq!(store.verify_new_audit().unwrap().checked, 27);
    mark("nonsense");
    assert_eq!(store.verify_new_audit().unwrap().checked, 27);

    // New rows are checked in full, and a fault leaves the mark where it was.
    fill_audit(&store, 3);
    raw(directory.path()).execute_batch("UPDATE audit SET actor = 'other' WHERE seq = 29").unwrap();
    let edited = Some(fault(29, AuditProblem::Edited));
    assert_eq!(store.verify_new_audit().unwrap().fault, edited);
    assert_eq!(store.verify_new_audit().unwrap().fault, edited);
}

#[test]
fn a_check_of_everything_finds_what_a_check_of_new_rows_does_not_look_at() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    fill_audit(&store, 9);
    assert!(store.verify_audit().unwrap().is_intact());
    raw(directory.path()).execute_batch("UPDATE audit SET actor = 'other' WHERE seq = 4").unwrap();
    fill_audit(&store, 1);
    assert!(store.verify_new_audit().unwrap().is_intact());
    assert_eq!(store.verify_audit().unwrap().fault, Some(fault(4, AuditProblem::Edited)));
    // The row a check ended with is looked at in any case.
    raw(directory.path()).execute_batch("UPDATE audit SET actor = 'other' WHERE seq = 10").unwrap();
    assert!(!store.verify_new_audit().unwrap().is_intact());
}
