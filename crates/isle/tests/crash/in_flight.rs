//! The daemon dies while commands run: each is picked up where it is, with all it said and how it
//! ended, and none is run twice.

use serde_json::{Value, json};

use crate::harness::http::try_unix;
use crate::harness::{TestDaemon, until};

fn wait(daemon: &TestDaemon, run: &Value) -> Value {
    daemon.post(&format!("/v1/runs/{}/wait", run["run_id"].as_str().unwrap()), json!({"timeout": "60s"}))
}

/// Counts itself in a file, says where it is, and goes on when told.
const COUNTED: &str = "echo run >> count; for i in 1 2 3; do echo line $i; \
    while ! [ -e go$i ]; do sleep 0.02; done; done; echo err >&2; exit 42";

#[test]
fn a_command_in_flight_is_taken_over_with_its_whole_output() {
    let mut daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({"command": COUNTED, "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    let said = |daemon: &TestDaemon| {
        let logs = daemon.get(&format!("/v1/runs/{id}/logs?stream=stdout"));
        logs["stdout"]["text"].as_str().unwrap().to_owned()
    };
    for line in 1..=3 {
        until("it has got so far", || said(&daemon).lines().count() == line);
        daemon.kill();
        daemon.launch();
        assert_eq!(daemon.post(&format!("/v1/runs/{id}/wait"), json!({"timeout": "0s"}))["state"], "running");
        daemon.shell("box", &format!("touch go{line}"));
    }
    let ended = wait(&daemon, &run);
    assert_eq!((&ended["state"], &ended["exit_code"]), (&json!("failed"), &json!(42)), "{ended}");
    assert_eq!(ended["stdout"], "line 1\nline 2\nline 3\n", "nothing lost, nothing twice");
    assert_eq!(ended["stderr"], "err\n");
    assert_eq!(daemon.shell("box", "cat count"), "run\n", "it ran once");
}

#[test]
fn a_command_that_ended_while_no_daemon_lived_is_told_to_the_last_byte() {
    let mut daemon = TestDaemon::start();
    let marker = format!("count-{}", std::process::id());
    let command =
        format!("# {marker}\necho run >> count; while ! [ -e go ]; do sleep 0.02; done; seq 1 1000; exit 9");
    let run = daemon.exec("box", json!({"command": command, "wait": "0s"}));
    let touch = daemon
        .exec("box", json!({"command": "while ! [ -e never ]; do sleep 0.3; touch go; done", "wait": "0s"}));
    until("both run", || daemon.get("/v1/health")["running"] == 2);
    daemon.kill();
    until("the first has ended", || crate::harness::processes_with(&marker).is_empty());
    daemon.launch();
    let ended = wait(&daemon, &run);
    assert_eq!((&ended["state"], &ended["exit_code"]), (&json!("failed"), &json!(9)), "{ended}");
    assert_eq!(ended["stdout"], (1..=1000).map(|number| format!("{number}\n")).collect::<String>());
    assert_eq!(daemon.shell("box", "cat count; touch never"), "run\n");
    assert_eq!(wait(&daemon, &touch)["state"], "completed");
    let history = daemon.get("/v1/runs?state=failed");
    assert_eq!(history["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn a_deadline_holds_although_the_daemon_that_set_it_is_dead() {
    let mut daemon = TestDaemon::start();
    let marker = format!("79201{:07}", std::process::id());
    let command = format!("(setsid sleep {marker} &) ; sleep {marker}");
    let run = daemon.exec("box", json!({"command": command, "timeout": "1500ms", "wait": "0s"}));
    let alive = || crate::harness::processes_with(&format!("sleep {marker} ")).len();
    until("both sleep", || alive() >= 2);
    daemon.kill();
    until("its time is up without any daemon", || alive() == 0);
    daemon.launch();
    assert_eq!(wait(&daemon, &run)["state"], "timed_out");
}

#[test]
fn a_caller_who_waited_is_cut_off_and_finds_the_run_by_its_history() {
    let mut daemon = TestDaemon::start();
    daemon.shell("box", "mkfifo gate");
    let socket = daemon.socket();
    let body = json!({"command": "read go < gate; echo went on"}).to_string();
    let caller = std::thread::spawn(move || {
        let kind = ["Content-Type: application/json"];
        try_unix(&socket, "POST /v1/sandboxes/box/exec", &kind, body.as_bytes()).map(|answer| answer.status)
    });
    until("it runs", || daemon.get("/v1/runs?state=running")["runs"].as_array().unwrap().len() == 1);
    daemon.kill();
    assert!(caller.join().unwrap().is_err(), "no answer is better than a wrong one");
    daemon.launch();
    let runs = daemon.get("/v1/runs?state=running");
    daemon.shell("box", "echo > gate");
    let ended = wait(&daemon, &runs["runs"][0]);
    assert_eq!((&ended["state"], &ended["stdout"]), (&json!("completed"), &json!("went on\n")), "{ended}");
}

#[test]
fn more_output_than_is_kept_is_counted_across_a_crash() {
    let mut daemon = TestDaemon::start_with(&[("ISLE_OUTPUT_CAP", "64K")]);
    daemon.shell("box", "mkfifo gate");
    let run =
        daemon.exec("box", json!({"command": "seq 1 100000; read go < gate; echo the end", "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    let total: usize = (1..=100_000).map(|number: u32| number.to_string().len() + 1).sum();
    let bytes = |daemon: &TestDaemon| {
        daemon.get(&format!("/v1/runs/{id}/logs?stream=stdout"))["stdout"]["total_bytes"].as_u64().unwrap()
    };
    until("all is printed", || bytes(&daemon) == total as u64);
    daemon.kill();
    daemon.launch();
    daemon.shell("box", "echo > gate");
    let ended = wait(&daemon, &run);
    assert_eq!(ended["stdout_bytes"], total + 8, "{ended}");
    let shown = ended["stdout"].as_str().unwrap();
    assert!(shown.starts_with("1\n2\n") && shown.ends_with("100000\nthe end\n"), "{shown}");
}
