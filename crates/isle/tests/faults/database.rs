//! Databases that cannot be used: cut off, with flipped bits, of another program. Each is said with a
//! code and left as it is, and no sandbox dies of it.

use std::path::PathBuf;

use serde_json::json;

use crate::ground::Ground;
use crate::harness::{finish, until};

/// Flips tried in each file.
const FLIPS: usize = 12;

fn alive(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

/// A daemon's worth of records, a living sandbox with a command in flight, and its agent.
fn stage() -> (Ground, String, i32) {
    let ground = Ground::new();
    ground.daemon.shell("box", "echo kept > file");
    let command = "echo begun; while ! [ -e go ]; do sleep 0.02; done; echo done";
    let job = ground.daemon.exec("box", json!({"command": command, "wait": "0s"}));
    let job = job["run_id"].as_str().unwrap().to_owned();
    until("the job has begun", || {
        ground.daemon.get(&format!("/v1/runs/{job}/logs?stream=stdout"))["stdout"]["text"] == "begun\n"
    });
    let agent = ground.agent("box");
    (ground, job, agent)
}

fn database(ground: &Ground) -> PathBuf {
    ground.daemon.home().state_dir().join("isle.db")
}

/// The good file again: everything is as it was.
fn restore_and_check(ground: &mut Ground, files: &[(PathBuf, Vec<u8>)], job: &str) {
    for side in ["isle.db-wal", "isle.db-shm"] {
        std::fs::remove_file(ground.daemon.home().state_dir().join(side)).ok();
    }
    for (path, good) in files {
        std::fs::write(path, good).unwrap();
    }
    ground.daemon.launch();
    ground.daemon.shell("box", "touch go");
    let ended = ground.daemon.post(&format!("/v1/runs/{job}/wait"), json!({"timeout": "60s"}));
    assert_eq!(
        (&ended["state"], &ended["stdout"]),
        (&json!("completed"), &json!("begun\ndone\n")),
        "{ended}"
    );
    assert_eq!(ground.daemon.shell("box", "cat file"), "kept\n");
    ground.daemon.succeeds(&["audit", "--verify"]);
}

#[test]
fn a_database_that_cannot_be_used_has_a_code_and_no_sandbox_dies_of_it() {
    let (mut ground, job, agent) = stage();
    ground.daemon.terminate();
    let path = database(&ground);
    let good = std::fs::read(&path).unwrap();
    let foreign = {
        let other = ground.daemon.home().path().join("other.db");
        rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
        std::fs::read(other).unwrap()
    };
    let mut bad = vec![
        b"this is no database, whatever its name says".repeat(200),
        foreign,
        Vec::new(),
        good[..50].to_vec(),
        good[..good.len() / 2].to_vec(),
        good[..good.len() - 1024].to_vec(),
    ];
    let mut torn = good.clone();
    torn[2048..2048 + 512].fill(0xa5);
    bad.push(torn);
    for content in bad {
        std::fs::write(&path, &content).unwrap();
        let said = ground.daemon.try_launch().unwrap_err();
        assert!(said.contains("STATE_DAMAGED") && said.contains("isle repair"), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), content, "nothing was touched");
        assert!(alive(agent), "the sandbox died of it");
    }
    restore_and_check(&mut ground, &[(path, good)], &job);
}

#[test]
fn flipped_bits_in_the_database_or_its_log_end_no_sandbox() {
    let (mut ground, job, agent) = stage();
    // Killed, so that there is a log beside the database.
    ground.daemon.kill();
    let path = database(&ground);
    let log = ground.daemon.home().state_dir().join("isle.db-wal");
    let files = [(path.clone(), std::fs::read(&path).unwrap()), (log.clone(), std::fs::read(&log).unwrap())];
    assert!(files[1].1.len() > 4096, "the log is to be damaged too");
    let mut number: u64 = 0x5eed;
    for flip in 0..2 * FLIPS {
        std::fs::remove_file(ground.daemon.home().state_dir().join("isle.db-shm")).ok();
        for (path, good) in &files {
            std::fs::write(path, good).unwrap();
        }
        let (damaged, good) = &files[flip % 2];
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = usize::try_from(number >> 20).unwrap() % good.len();
        let mut bad = good.clone();
        bad[place] ^= 1 << (number >> 60 & 7);
        std::fs::write(damaged, bad).unwrap();
        match ground.daemon.try_launch() {
            Ok(()) => ground.daemon.kill(),
            Err(said) => assert!(said.contains("\"code\"") && said.contains("next_steps"), "{said}"),
        }
        assert!(alive(agent), "the sandbox died of bit {place} in {}", damaged.display());
    }
    restore_and_check(&mut ground, &files, &job);
}

#[test]
fn a_damaged_database_is_set_aside_on_request_and_what_lives_is_taken_over() {
    let (mut ground, job, agent) = stage();
    ground.daemon.terminate();
    let path = database(&ground);
    let state = ground.daemon.home().state_dir();
    let good = std::fs::read(&path).unwrap();
    let key = std::fs::read(state.join("audit.key")).unwrap();
    let foreign = {
        let other = ground.daemon.home().path().join("other.db");
        rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
        std::fs::read(other).unwrap()
    };
    let mut torn = good.clone();
    torn[2048..2048 + 512].fill(0xa5);
    let bad = [torn, good[..good.len() / 2].to_vec(), foreign, Vec::new(), b"no database at all".repeat(99)];
    for (number, content) in bad.iter().enumerate() {
        for side in ["isle.db-wal", "isle.db-shm"] {
            std::fs::remove_file(state.join(side)).ok();
        }
        std::fs::write(&path, content).unwrap();
        let said = ground.daemon.try_launch().unwrap_err();
        assert!(said.contains("STATE_DAMAGED"), "{said}");
        let told = ground.daemon.succeeds(&["repair", "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["damaged"], true, "{told}");
        let place = PathBuf::from(told["quarantine"].as_str().unwrap());
        assert_eq!(&std::fs::read(place.join("isle.db")).unwrap(), content, "all of it is there");
        assert_eq!(std::fs::read_dir(state.join("quarantine")).unwrap().count(), number + 1);
        assert!(alive(agent), "the sandbox died of it");
        ground.daemon.launch();
        assert_eq!(ground.daemon.names(), ["box"]);
        // With its files and what runs in it, and it is told how that came about.
        let rows = ground.daemon.succeeds(&["audit", "--json"]);
        assert!(rows.contains("repair") && rows.contains("adopt_sandbox"), "{rows}");
        ground.daemon.succeeds(&["audit", "--verify"]);
        assert_eq!(ground.daemon.shell("box", "cat file"), "kept\n");
        assert_eq!(
            ground.daemon.get(&format!("/v1/runs/{job}/logs?stream=stdout"))["stdout"]["text"],
            "begun\n"
        );
        ground.daemon.terminate();
    }
    // Nothing is lost: the good one works again with its key, and the command goes on.
    std::fs::write(&path, &good).unwrap();
    std::fs::write(state.join("audit.key"), key).unwrap();
    ground.daemon.launch();
    ground.daemon.shell("box", "touch go");
    let ended = ground.daemon.post(&format!("/v1/runs/{job}/wait"), json!({"timeout": "60s"}));
    assert_eq!(ended["stdout"], "begun\ndone\n", "{ended}");
    ground.daemon.succeeds(&["audit", "--verify"]);
}

#[test]
fn a_database_that_is_good_in_use_or_too_new_is_not_set_aside() {
    let mut ground = Ground::new();
    ground.daemon.shell("box", "true");
    let repair = |ground: &Ground| {
        let output = finish(&mut ground.daemon.isle(&["repair"]));
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert!(repair(&ground).contains("ALREADY_EXISTS"), "a daemon runs");
    ground.daemon.terminate();
    assert_eq!(repair(&ground), "The database is intact.\n");
    let path = database(&ground);
    let opened = rusqlite::Connection::open(&path).unwrap();
    let version: u32 = opened.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    opened.pragma_update(None, "user_version", 999_999).unwrap();
    drop(opened);
    assert!(repair(&ground).contains("STATE_TOO_NEW"));
    assert!(path.exists() && !ground.daemon.home().state_dir().join("quarantine").exists());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
    ground.daemon.launch();
    assert_eq!(ground.daemon.names(), ["box"]);
}
