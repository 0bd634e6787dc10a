//! The daemon dies while nothing is asked of it: its sandboxes do not notice.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, finish, processes_with, until};

fn sandbox(daemon: &TestDaemon, name: &str) -> Value {
    daemon.get(&format!("/v1/status?sandbox={name}"))["sandboxes"][0].clone()
}

#[test]
fn named_sandboxes_and_what_runs_in_them_outlive_the_daemon() {
    let mut daemon = TestDaemon::start();
    let marker = format!("79101{:07}", std::process::id());
    daemon.shell("one", "echo kept > file; echo tmp > /tmp/file");
    daemon.shell("two", "true");
    let job = daemon.exec("one", json!({"command": format!("sleep {marker}"), "wait": "0s"}));
    let before: Vec<Value> = ["one", "two"].map(|name| sandbox(&daemon, name)["id"].clone()).into();
    until("the job runs", || processes_with(&format!("sleep {marker} ")).len() == 1);
    let sleeper = processes_with(&format!("sleep {marker} "));
    daemon.kill();
    assert_eq!(processes_with(&format!("sleep {marker} ")), sleeper, "nobody told it to end");

    // The next command finds no daemon and starts one.
    let listed = finish(&mut daemon.isle_starting(&["ls", "--json"]));
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let states: Vec<&Value> =
        listed["sandboxes"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, [&json!("running"), &json!("running")], "{listed}");
    let after: Vec<Value> = ["one", "two"].map(|name| sandbox(&daemon, name)["id"].clone()).into();
    assert_eq!(before, after, "the same incarnations");
    assert_eq!(daemon.shell("one", "cat file /tmp/file"), "kept\ntmp\n");
    assert_eq!(processes_with(&format!("sleep {marker} ")), sleeper);
    let id = job["run_id"].as_str().unwrap();
    assert_eq!(daemon.post(&format!("/v1/runs/{id}/wait"), json!({"timeout": "0s"}))["state"], "running");
    let killed = daemon.post(&format!("/v1/runs/{id}/kill"), json!({}));
    assert_eq!((&killed["state"], &killed["signal"]), (&json!("killed"), &json!(15)), "{killed}");
    assert!(processes_with(&format!("sleep {marker} ")).is_empty());
}

#[test]
fn limits_and_settings_hold_after_the_daemon_died() {
    let mut daemon = TestDaemon::start();
    daemon.post("/v1/sandboxes", json!({"sandbox": "box", "memory": "64M", "pids": 32}));
    daemon.kill();
    daemon.launch();
    let status = daemon.get("/v1/status?sandbox=box");
    assert_eq!(
        (&status["detail"]["limits"]["memory"], &status["detail"]["limits"]["pids"]),
        (&json!("64M"), &json!(32))
    );
    if daemon.enforces("box", "memory_limit") {
        let run = daemon.exec("box", json!({"command": "exec dd if=/dev/zero of=/dev/null bs=300M count=1"}));
        assert_eq!(run["state"], "oom_killed", "{run}");
    }
}

#[test]
fn one_shots_die_with_the_daemon_and_are_told_as_lost() {
    let mut daemon = TestDaemon::start();
    let marker = format!("79102{:07}", std::process::id());
    daemon.shell("named", "true");
    let run = daemon.post(
        "/v1/runs",
        json!({"command": format!("(setsid sleep {marker} &) ; sleep {marker}"), "wait": "0s"}),
    );
    until("both sleep", || processes_with(&format!("sleep {marker} ")).len() >= 2);
    daemon.kill();
    daemon.launch();
    until("nothing of it is left", || processes_with(&marker).is_empty());
    let id = run["run_id"].as_str().unwrap();
    let ended = daemon.post(&format!("/v1/runs/{id}/wait"), json!({}));
    assert_eq!((&ended["state"], &ended["exit_code"]), (&json!("lost"), &Value::Null), "{ended}");
    assert_eq!(daemon.names(), ["named"]);
    assert_eq!(daemon.get("/v1/health")["one_shots"], 0);
}

#[test]
fn history_and_audit_survive_and_the_chain_is_whole() {
    let mut daemon = TestDaemon::start();
    for round in 0..3 {
        daemon.exec("box", json!({"command": format!("echo {round}")}));
        daemon.kill();
        daemon.launch();
    }
    let runs = daemon.get("/v1/runs")["runs"].as_array().unwrap().clone();
    let states: Vec<&Value> = runs.iter().map(|run| &run["state"]).collect();
    assert_eq!(states, [&json!("completed"); 3], "what was answered is on record");
    for (run, round) in runs.iter().rev().zip(0..) {
        let logs = daemon.get(&format!("/v1/runs/{}/logs?stream=stdout", run["run_id"].as_str().unwrap()));
        assert_eq!(logs["stdout"]["text"], format!("{round}\n"));
    }
    daemon.succeeds(&["audit", "--verify"]);
    let rows = daemon.get("/v1/audit?action=exec");
    assert_eq!(rows["rows"].as_array().unwrap().len(), 3);
}
