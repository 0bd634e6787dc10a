//! Parts that die on their own: the agent of a sandbox, the fork server.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{TestDaemon, processes_with, until, until_some};

/// The first process of the sandbox a process runs in, as the host numbers it: up its ancestors until
/// one that is number 1 inside, or was made by a fork server among the host's processes.
pub(super) fn first_process(of: i32) -> i32 {
    let mut pid = of;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let last_number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().last().unwrap().parse::<i32>().unwrap()
        };
        let above = last_number("PPid:");
        let maker = std::fs::read(format!("/proc/{above}/cmdline")).unwrap_or_default();
        if last_number("NSpid:") == 1 || maker.starts_with(b"isle-fork-server") {
            return pid;
        }
        pid = above;
        assert!(pid > 1, "{of} runs in no sandbox");
    }
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_sandbox_whose_agent_dies_is_built_anew_and_its_command_is_told_as_lost() {
    let daemon = TestDaemon::start();
    let marker = format!("79301{:07}", std::process::id());
    daemon.shell("box", "echo kept > file; touch /tmp/gone");
    daemon.shell("other", "true");
    let other_job = daemon.exec("other", json!({"command": "sleep 79302; echo no", "wait": "0s"}));
    let command = format!("echo begun; echo run >> count; sleep {marker}");
    let run = daemon.exec("box", json!({"command": command, "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    let sleeper = until_some("it sleeps", || processes_with(&format!("sleep {marker} ")).first().copied());
    let before = daemon.get("/v1/status?sandbox=box")["sandboxes"][0]["id"].clone();
    until("its first word is heard", || {
        daemon.get(&format!("/v1/runs/{id}/logs?stream=stdout"))["stdout"]["text"] == "begun\n"
    });
    kill(first_process(sleeper));

    let lost = daemon.post(&format!("/v1/runs/{id}/wait"), json!({}));
    assert_eq!((&lost["state"], &lost["exit_code"]), (&json!("lost"), &Value::Null), "{lost}");
    assert_eq!(lost["stdout"], "begun\n", "what it said before is kept");
    until("the whole sandbox went with its first process", || processes_with(&marker).is_empty());
    until("the death is seen", || daemon.get("/v1/status?sandbox=box")["sandboxes"][0]["state"] == "failed");
    let told = daemon.get("/v1/events/history?sandbox=box&kind=sandbox_lost&kind=run_lost");
    let mut kinds: Vec<&str> =
        told["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["run_lost", "sandbox_lost"], "each is told once: {told}");
    // The next call builds it anew.
    assert_eq!(
        daemon.shell("box", "cat file count; ls -A /tmp"),
        "kept\nrun\n",
        "files stay, nothing ran twice"
    );
    let after = daemon.get("/v1/status?sandbox=box")["sandboxes"][0]["id"].clone();
    assert_ne!(before, after);
    let neighbour = daemon
        .post(&format!("/v1/runs/{}/wait", other_job["run_id"].as_str().unwrap()), json!({"timeout": "0s"}));
    assert_eq!(neighbour["state"], "running", "others are not touched");
    let actions: Vec<String> = daemon.get("/v1/audit?sandbox=box")["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["action"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        actions.contains(&"sandbox_failed".to_owned()) && actions.contains(&"rebuild_sandbox".to_owned()),
        "{actions:?}"
    );
}

#[test]
fn a_sandbox_that_died_while_no_daemon_lived_is_built_anew() {
    let mut daemon = TestDaemon::start();
    let marker = format!("79303{:07}", std::process::id());
    daemon.shell("box", "echo kept > file");
    let run = daemon.exec("box", json!({"command": format!("sleep {marker}"), "wait": "0s"}));
    let sleeper = until_some("it sleeps", || processes_with(&format!("sleep {marker} ")).first().copied());
    daemon.kill();
    kill(first_process(sleeper));
    until("it is dead", || processes_with(&marker).is_empty());
    daemon.launch();
    assert_eq!(daemon.get("/v1/status?sandbox=box")["sandboxes"][0]["state"], "failed");
    let id = run["run_id"].as_str().unwrap();
    assert_eq!(daemon.post(&format!("/v1/runs/{id}/wait"), json!({}))["state"], "lost");
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
}

#[test]
fn the_fork_server_is_started_anew_when_it_dies() {
    let daemon = TestDaemon::start_with(&[("ISLE_POOL_SIZE", "0")]);
    daemon.shell("before", "true");
    let mark = format!("fork-server {}", daemon.home().state_dir().display());
    let server = || {
        let us = daemon.pid().to_string();
        processes_with(&mark).into_iter().find(|pid| {
            // Sandboxes may carry its words; only the server itself is the daemon's child.
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|parent| parent.trim() == us))
        })
    };
    for round in 0..3 {
        let pid = until_some("there is a fork server", server);
        kill(pid);
        until("it is gone", || server() != Some(pid));
        assert_eq!(daemon.shell(&format!("box{round}"), "echo made"), "made\n");
        assert_eq!(daemon.post("/v1/runs", json!({"command": "echo once"}))["stdout"], "once\n");
    }
    assert_eq!(daemon.shell("before", "echo still there"), "still there\n");
}
