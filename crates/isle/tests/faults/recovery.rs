//! Starting on what an earlier daemon left: a living sandbox with a command in flight, a dead one, a
//! half-made one, a half-removed one, a one-shot that was cut off; and the same start, interrupted or
//! failing at every point it passes. And a start without any records at all.

use std::collections::BTreeMap;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::ground::{Action, Ground};
use crate::harness::{tiers, until};
use crate::points::{actions, point};

/// How often one start may pass one point and have each time tried: writing, which everything does,
/// more than once.
fn most(name: &str) -> usize {
    if name.starts_with("store.") { 3 } else { 1 }
}

const JOB: &str = "echo run >> count; echo begun; while ! [ -e go ]; do sleep 0.02; done; echo done";

/// What was begun before the daemon died.
#[derive(Debug)]
struct Left {
    job: String,
    lost: Vec<String>,
}

fn begin(ground: &Ground, path: &str, body: Value) -> String {
    ground.daemon.post(path, body)["run_id"].as_str().unwrap().to_owned()
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    until("it is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
}

/// Leaves something of every kind behind, and no daemon.
fn leave(ground: &mut Ground) -> Left {
    let daemon = &ground.daemon;
    let job = begin(ground, "/v1/sandboxes/alive/exec", json!({"command": JOB, "wait": "0s"}));
    for name in ["dead", "half", "going"] {
        daemon.shell(name, "echo kept > file");
    }
    let cut_off = begin(ground, "/v1/sandboxes/dead/exec", json!({"command": "sleep 1000", "wait": "0s"}));
    let tier = tiers()[tiers().len() - 1];
    let body = json!({"command": "sleep 1000", "wait": "0s", "tier": tier, "allow_downgrade": true});
    let once = begin(ground, "/v1/runs", body);
    until("the job has begun", || {
        daemon.get(&format!("/v1/runs/{job}/logs?stream=stdout"))["stdout"]["text"] == "begun\n"
    });
    let dead = ground.agent("dead");
    let half = ground.daemon.get("/v1/status?sandbox=half")["sandboxes"][0]["id"].clone();
    ground.daemon.kill();
    // As it is before anybody was told of it.
    let record = ground.daemon.home().state_dir().join("native/records").join(half.as_str().unwrap());
    let told = std::fs::read_to_string(&record).unwrap();
    let untold = told.replace("\"confirmed\":true", "\"confirmed\":false");
    assert_ne!(told, untold);
    std::fs::write(&record, untold).unwrap();
    kill(dead);
    let database = rusqlite::Connection::open(ground.daemon.home().state_dir().join("isle.db")).unwrap();
    for (name, state) in [("half", "creating"), ("going", "destroying")] {
        let changed = database.execute("UPDATE sandboxes SET state = ?2 WHERE name = ?1", [name, state]);
        assert_eq!(changed.unwrap(), 1);
    }
    Left { job, lost: vec![cut_off, once] }
}

/// What must be so once a daemon has started, whatever the ones before it died of.
fn check(ground: &mut Ground, left: &Left) {
    let names: Vec<String> = ground.names().into_iter().collect();
    assert_eq!(names, ["alive", "dead"], "what was half done is gone, the rest is there");
    let daemon = &ground.daemon;
    daemon.shell("alive", "touch go");
    let ended = daemon.post(&format!("/v1/runs/{}/wait", left.job), json!({"timeout": "60s"}));
    assert_eq!(
        (&ended["state"], &ended["stdout"]),
        (&json!("completed"), &json!("begun\ndone\n")),
        "{ended}"
    );
    assert_eq!(daemon.shell("alive", "cat count"), "run\n", "it ran once");
    for run in &left.lost {
        assert_eq!(daemon.post(&format!("/v1/runs/{run}/wait"), json!({}))["state"], "lost");
    }
    ground.check(&["going"]);
    assert_eq!(ground.daemon.shell("dead", "cat file"), "kept\n");
    assert_eq!(ground.daemon.shell("going", "cat file"), "kept\n", "it was to be destroyed, not wiped");
    assert_eq!(ground.daemon.shell("half", "ls -A"), "", "of what was never made nothing is left");
}

fn count(passed: Vec<String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in passed {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// Starts undisturbed and counts what is passed.
pub(crate) fn rehearse() -> BTreeMap<String, usize> {
    let mut ground = Ground::new();
    let left = leave(&mut ground);
    ground.forget_passed();
    ground.daemon.launch();
    let counts = count(ground.passed());
    check(&mut ground, &left);
    counts
}

/// Starts with a fault at one point, then once more without.
fn play(ground: &mut Ground, name: &str, action: Action, number: usize) {
    println!("start: {action:?} at {name} ({number})");
    let left = leave(ground);
    ground.arm(name, action, number);
    let started = ground.daemon.try_launch();
    assert!(ground.has_fired(), "{name} was not passed: {started:?}");
    match (action, started) {
        (Action::Die, Ok(())) => ground.daemon.died(),
        (Action::Fail | Action::Full, Ok(())) => ground.daemon.kill(),
        (Action::Die, Err(said)) => assert_eq!(said, "", "the dead say nothing"),
        (Action::Fail | Action::Full, Err(said)) => assert!(said.contains("\"code\""), "{said}"),
    }
    ground.daemon.launch();
    check(ground, &left);
    ground.clear();
}

fn play_all(wanted: impl Fn(Action) -> bool) {
    let mut ground = Ground::new();
    for (name, count) in rehearse() {
        for action in actions(point(&name)).iter().filter(|action| wanted(**action)) {
            for number in 1..=count.min(most(&name)) {
                play(&mut ground, &name, *action, number);
            }
        }
    }
}

#[test]
fn a_start_that_dies_at_any_point_is_finished_by_the_next() {
    play_all(|action| action == Action::Die);
}

#[test]
fn a_start_that_fails_at_any_point_is_finished_by_the_next() {
    play_all(|action| action != Action::Die);
}

/// Takes the database away, as somebody would whose database is damaged.
pub(crate) fn lose_records(ground: &Ground) {
    let state = ground.daemon.home().state_dir();
    for name in ["isle.db", "isle.db-wal", "isle.db-shm", "audit.key"] {
        std::fs::remove_file(state.join(name)).ok();
    }
}

/// Starts without any records and counts what is passed.
pub(crate) fn rehearse_adoption() -> BTreeMap<String, usize> {
    let mut ground = Ground::new();
    ground.daemon.shell("alive", "true");
    ground.daemon.kill();
    lose_records(&ground);
    ground.forget_passed();
    ground.daemon.launch();
    count(ground.passed())
}

#[test]
fn living_sandboxes_outlive_the_loss_of_the_whole_database() {
    for fault in [None, Some("recover.adopted"), Some("store.committed"), Some("native.held")] {
        let mut ground = Ground::new();
        let job = begin(&ground, "/v1/sandboxes/alive/exec", json!({"command": JOB, "wait": "0s"}));
        ground.daemon.post("/v1/sandboxes", json!({"sandbox": "own", "memory": "200M"}));
        ground.daemon.shell("own", "echo kept > file");
        ground.daemon.shell("dead", "echo kept > file");
        let (agent, dead) = (ground.agent("alive"), ground.agent("dead"));
        until("the job has begun", || {
            let logs = ground.daemon.get(&format!("/v1/runs/{job}/logs?stream=stdout"));
            logs["stdout"]["text"] == "begun\n"
        });
        ground.daemon.kill();
        kill(dead);
        lose_records(&ground);
        if let Some(point) = fault {
            ground.arm(point, Action::Die, 1);
            ground.daemon.try_launch().unwrap_err();
        }
        ground.daemon.launch();
        assert_eq!(ground.names().into_iter().collect::<Vec<_>>(), ["alive", "own"], "{fault:?}");
        assert_eq!(ground.agent("alive"), agent, "it is the same sandbox");
        ground.daemon.shell("alive", "touch go");
        let ended = ground.daemon.post(&format!("/v1/runs/{job}/wait"), json!({"timeout": "60s"}));
        assert_eq!(ended["stdout"], "begun\ndone\n", "{ended}");
        let own = ground.daemon.get("/v1/status?sandbox=own");
        assert_eq!(own["detail"]["limits"]["memory"], "200M", "{own}");
        assert_eq!(ground.daemon.shell("own", "cat file"), "kept\n");
        assert_eq!(ground.daemon.shell("dead", "cat file"), "kept\n", "workspaces stay in any case");
        ground.daemon.succeeds(&["audit", "--verify"]);
        let rows = ground.daemon.get("/v1/audit?sandbox=alive")["rows"].clone();
        assert!(rows.to_string().contains("adopt_sandbox"), "{rows}");
    }
}
