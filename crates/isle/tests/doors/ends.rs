//! How commands end: by themselves, out of time, by a signal, by a caller. Each is told apart, and
//! nothing of an ended command lives on.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, processes_with, until};

/// A tree nobody could find by its process group: forked twice, in sessions of their own.
fn stubborn_tree(marker: &str) -> String {
    format!(
        "trap '' TERM INT HUP; echo begun; \
         (setsid sh -c '(setsid sleep {marker} &) ; exec sleep {marker}' &) ; \
         exec sleep {marker}"
    )
}

/// A number of seconds only one test sleeps for.
fn marker(test: u32) -> String {
    format!("{}{:07}", 77_000 + test, std::process::id())
}

#[test]
fn a_timed_out_exec_leaves_no_process_behind() {
    let daemon = TestDaemon::start();
    let marker = marker(1);
    let run = daemon.exec("box", json!({"command": stubborn_tree(&marker), "timeout": "1s"}));
    assert_eq!(run["state"], "timed_out", "{run}");
    assert_eq!(run["stdout"], "begun\n", "what it said before is kept");
    assert!(run["note"].as_str().unwrap().contains("1s"), "{run}");
    until("the whole tree is gone", || processes_with(&marker).is_empty());
    assert_eq!(daemon.shell("box", "echo still there"), "still there\n");
}

#[test]
fn a_killed_run_takes_its_whole_tree_with_it() {
    let daemon = TestDaemon::start();
    let marker = marker(2);
    let run = daemon.exec("box", json!({"command": stubborn_tree(&marker), "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    until("all three sleep", || processes_with(&format!("sleep {marker} ")).len() >= 3);
    let killed = daemon.post(&format!("/v1/runs/{id}/kill"), json!({"force": true}));
    assert_eq!(killed["state"], "killed", "{killed}");
    assert_eq!(killed["last_output"], "begun\n");
    until("the whole tree is gone", || processes_with(&marker).is_empty());
    let again = daemon.refused("POST", &format!("/v1/runs/{id}/kill"), Some(&json!({})));
    assert_eq!(again["code"], "RUN_FINISHED");
}

#[test]
fn a_polite_kill_lets_a_program_say_its_last_words() {
    let daemon = TestDaemon::start();
    let command = "trap 'echo last words; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let run = daemon.exec("box", json!({"command": command, "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    until("it is ready", || log_of(&daemon, id).contains("ready"));
    let killed = daemon.post(&format!("/v1/runs/{id}/kill"), json!({}));
    assert_eq!((&killed["state"], &killed["exit_code"]), (&json!("killed"), &json!(7)), "{killed}");
    assert!(killed["last_output"].as_str().unwrap().ends_with("last words\n"));
}

#[test]
fn a_program_that_ignores_the_polite_signal_is_ended_after_a_grace() {
    let daemon = TestDaemon::start();
    let marker = marker(3);
    let run = daemon.exec("box", json!({"command": stubborn_tree(&marker), "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    until("it has begun", || log_of(&daemon, id).contains("begun"));
    let killed = daemon.post(&format!("/v1/runs/{id}/kill"), json!({}));
    assert_eq!(killed["state"], "killed", "{killed}");
    until("the whole tree is gone", || processes_with(&marker).is_empty());
}

#[test]
fn a_signal_alone_is_only_delivered() {
    let daemon = TestDaemon::start();
    let command = "trap 'echo got it' USR1; echo ready; while ! [ -e done ]; do sleep 0.02; done";
    let run = daemon.exec("box", json!({"command": command, "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    until("it is ready", || log_of(&daemon, id).contains("ready"));
    let sent = daemon.post(&format!("/v1/runs/{id}/kill"), json!({"signal": "USR1"}));
    assert_eq!(sent["state"], "running", "{sent}");
    until("it got the signal", || log_of(&daemon, id).contains("got it"));
    daemon.shell("box", "touch done");
    let ended = daemon.post(&format!("/v1/runs/{id}/wait"), json!({}));
    assert_eq!(ended["state"], "completed", "{ended}");
}

#[test]
fn endings_that_look_alike_are_told_apart() {
    let daemon = TestDaemon::start();
    let ended = |command: &str| daemon.exec("box", json!({ "command": command }));
    assert_eq!(ended("exit 0")["state"], "completed");
    let own = ended("exit 137");
    assert_eq!((&own["state"], &own["exit_code"]), (&json!("failed"), &json!(137)), "{own}");
    let own = ended("exit 124");
    assert_eq!((&own["state"], &own["exit_code"]), (&json!("failed"), &json!(124)), "{own}");
    let signal = ended("kill -KILL $$");
    assert_eq!((&signal["state"], &signal["signal"]), (&json!("killed"), &json!(9)), "{signal}");
    assert_eq!(signal["exit_code"], Value::Null);
    let signal = ended("kill -SEGV $$");
    assert_eq!((&signal["state"], &signal["signal"]), (&json!("killed"), &json!(11)), "{signal}");
}

#[test]
fn what_a_finished_command_left_behind_ends_with_it() {
    let daemon = TestDaemon::start();
    let marker = marker(4);
    let command = format!("(setsid sleep {marker} > /dev/null 2>&1 < /dev/null &) ; echo done");
    let run = daemon.exec("box", json!({ "command": command }));
    assert_eq!(run["state"], "completed");
    assert!(run["note"].as_str().unwrap().contains("left behind"), "{run}");
    until("it is gone", || processes_with(&marker).is_empty());
}

#[test]
fn a_caller_that_hangs_up_does_not_end_the_run() {
    use std::io::Write;
    let daemon = TestDaemon::start();
    daemon.shell("box", "mkfifo go");
    let body = json!({"command": "read word < go; echo $word > answer"}).to_string();
    let mut stream = std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap();
    let head = "POST /v1/sandboxes/box/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let running = || daemon.get("/v1/runs?state=running")["runs"].as_array().unwrap().len();
    until("the run has begun", || running() == 1);
    drop(stream);
    daemon.shell("box", "echo went on > go");
    until("it has ended", || running() == 0);
    assert_eq!(daemon.shell("box", "cat answer"), "went on\n");
}

fn log_of(daemon: &TestDaemon, run: &str) -> String {
    let logs = daemon.get(&format!("/v1/runs/{run}/logs?stream=stdout"));
    logs["stdout"]["text"].as_str().unwrap().to_owned()
}
