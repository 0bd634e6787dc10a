//! Bad days: the process is killed, the disk is full.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{end, entry, run, sandbox};
use isle_store::{RunEnd, RunFilter, RunOutput, Store, StoreError};

const DIRECTORY: &str = "ISLE_STORE_TEST_DIRECTORY";

/// This test binary once more, running only the named test, which then finds its directory set.
fn again(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(DIRECTORY, directory).stdout(Stdio::piped());
    command
}

fn given_directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

fn wait_for(child: &mut Child, text: &str) {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.contains(text)), "the child never said {text:?}");
}

#[test]
fn what_was_committed_survives_kill_9() {
    const TEST: &str = "faults::what_was_committed_survives_kill_9";
    if let Some(directory) = given_directory() {
        let store = Store::open(&directory).unwrap();
        store.insert_sandbox(&sandbox("s1", Some("default"))).unwrap();
        for count in 0.. {
            let id = format!("r{count}");
            store.begin_run(&run(&id, "default")).unwrap();
            if count == 300 {
                println!("ready");
            }
            store.finish_run(&id, &end("completed"), &entry("exec", "default")).unwrap();
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut runs = 0;
    for round in 1..=3 {
        let state = directory.path().join(format!("round-{round}"));
        let mut child = again(TEST, &state).spawn().unwrap();
        wait_for(&mut child, "ready");
        assert!(matches!(Store::open(&state), Err(StoreError::Locked { pid }) if pid == Some(child.id())));
        child.kill().unwrap();
        child.wait().unwrap();

        let store = Store::open(&state).unwrap();
        assert_eq!(store.sandboxes().unwrap().len(), 1);
        let (mut all, mut filter) = (Vec::new(), RunFilter { limit: u32::MAX, ..RunFilter::default() });
        loop {
            let page = store.runs(&filter).unwrap();
            all.extend(page.rows);
            let Some(next) = page.next else { break };
            filter.before = Some(next);
        }
        assert!(all.len() > 300);
        // Killed between two calls or within one: each call is all or nothing.
        let open = store.unfinished_runs().unwrap().len();
        assert!(open <= 1);
        let verdict = store.verify_audit().unwrap();
        assert!(verdict.is_intact(), "{verdict}");
        assert_eq!(verdict.rows, (all.len() - open) as u64);
        runs += all.len();
    }
    assert!(runs > 900);
}

#[test]
fn a_full_disk_is_reported_keeps_nothing_of_the_call_and_passes() {
    const TEST: &str = "faults::a_full_disk_is_reported_keeps_nothing_of_the_call_and_passes";
    if let Some(directory) = given_directory() {
        fill_the_disk(&directory);
        println!("passed");
        return;
    }
    // A small file system of its own, gone with the child's mount namespace.
    let directory = tempfile::tempdir().unwrap();
    let inner = again(TEST, directory.path());
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg(r#"mount -t tmpfs -o size=1m,mode=0700 tmpfs "$0" && echo mounted && exec "$@""#)
        .arg(directory.path())
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(DIRECTORY, directory.path());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    isle_e2e::require!(text.contains("mounted"), "no user namespaces to mount a small disk in: {why}");
    assert!(text.contains("passed"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn fill_the_disk(directory: &Path) {
    let filler = directory.join("filler");
    std::fs::write(&filler, vec![1; 300_000]).unwrap();
    let store = Store::open(directory).unwrap();
    let big = RunEnd {
        output: RunOutput { stdout_head: vec![7; 20_000], ..RunOutput::default() },
        ..end("completed")
    };
    let mut finished = 0;
    let error = loop {
        let id = format!("r{finished}");
        if let Err(error) = store.begin_run(&run(&id, "default")) {
            break error;
        }
        match store.finish_run(&id, &big, &entry("exec", "default")) {
            Ok(()) => finished += 1,
            Err(error) => break error,
        }
        assert!(finished < 1_000);
    };
    assert!(matches!(error, StoreError::Full), "{error:?}");
    // What was there can still be read, and nothing is half written.
    let completed = |store: &Store| {
        let filter = RunFilter { state: Some("completed".into()), limit: u32::MAX, ..RunFilter::default() };
        store.runs(&filter).unwrap().rows.len() as u64
    };
    let before = store.verify_audit().unwrap();
    assert!(before.is_intact(), "{before}");
    assert_eq!(before.rows, completed(&store));

    std::fs::remove_file(&filler).unwrap();
    store.begin_run(&run("after", "default")).unwrap();
    store.finish_run("after", &end("completed"), &entry("exec", "default")).unwrap();
    drop(store);
    let store = Store::open(directory).unwrap();
    let after = store.verify_audit().unwrap();
    assert!(after.is_intact(), "{after}");
    assert_eq!(after.rows, before.rows + 1);
    assert_eq!(after.rows, completed(&store));
}

#[test]
fn a_log_that_grows_long_starts_over_while_calls_go_on() {
    const OUTPUT: usize = 1 << 20;
    const MOST: usize = 1_024;
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let started = store.get_value("log_started").unwrap();
    let big = RunEnd {
        output: RunOutput { stdout_tail: vec![7; OUTPUT], ..RunOutput::default() },
        ..end("completed")
    };
    let mut runs = 0;
    while store.get_value("log_started").unwrap() == started {
        assert!(runs < MOST, "the log never started over");
        let id = format!("r{runs}");
        store.begin_run(&run(&id, "default")).unwrap();
        store.finish_run(&id, &big, &entry("exec", "default")).unwrap();
        runs += 1;
    }
    let all = store.runs(&RunFilter { limit: u32::MAX, ..RunFilter::default() }).unwrap().rows;
    assert_eq!(all.len(), runs);
    assert_eq!(store.run_output("r0").unwrap().unwrap(), big.output);
    assert!(store.verify_audit().unwrap().is_intact());
}
