//! Parts that are killed: agents of both kinds, both fork servers, processes of a guest.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::harness::{
    Case, TestDaemon, needs_tier, per_tier, processes_with, require, tiers, until, until_some,
};

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

fn parent(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn wait(daemon: &TestDaemon, run: &Value) -> Value {
    let id = run["run_id"].as_str().unwrap();
    daemon.post(&format!("/v1/runs/{id}/wait"), json!({"timeout": "60s"}))
}

per_tier!(a_killed_agent_of_a_named_sandbox_loses_its_run_and_nothing_else);

fn a_killed_agent_of_a_named_sandbox_loses_its_run_and_nothing_else(Case { tier, .. }: Case) {
    let ground = Ground::new();
    let daemon = &ground.daemon;
    daemon.post("/v1/sandboxes", json!({"sandbox": "box", "tier": tier, "allow_downgrade": true}));
    let marker = format!("79{}{:07}", if tier == "container" { 401 } else { 411 }, std::process::id());
    daemon.shell("box", "echo kept > file");
    let run = daemon.exec("box", json!({"command": format!("sleep {marker}"), "wait": "0s"}));
    until("it sleeps", || !processes_with(&format!("sleep {marker} ")).is_empty());
    kill(ground.agent("box"));
    assert_eq!(wait(daemon, &run)["state"], "lost", "{tier}");
    until("its processes went with it", || processes_with(&marker).is_empty());
    assert_eq!(daemon.shell("box", "cat file"), "kept\n", "{tier}: built anew with its workspace");
    let status = daemon.get("/v1/status?sandbox=box");
    assert_eq!(status["sandboxes"][0]["tier"], tier, "built anew as it was: {status}");
}

per_tier!(a_killed_agent_of_a_one_shot_is_told_as_lost_and_leaves_nothing);

fn a_killed_agent_of_a_one_shot_is_told_as_lost_and_leaves_nothing(Case { tier, .. }: Case) {
    let ground = Ground::new();
    let daemon = &ground.daemon;
    let marker = format!("79{}{:07}", if tier == "container" { 402 } else { 412 }, std::process::id());
    let body = json!({
        "command": format!("sleep {marker}"), "wait": "0s", "tier": tier, "allow_downgrade": true,
    });
    let run = daemon.post("/v1/runs", body);
    until("it sleeps", || !processes_with(&format!("sleep {marker} ")).is_empty());
    let agents = processes_with(&format!("isle-agent {}", run["sandbox"].as_str().unwrap()));
    kill(agents[0]);
    assert_eq!(wait(daemon, &run)["state"], "lost", "{tier}");
    until("its processes went with it", || processes_with(&marker).is_empty());
    until("it is gone", || daemon.get("/v1/health")["one_shots"] == 0);
    assert!(daemon.counts().directories.is_empty());
}

#[test]
fn killed_fork_servers_are_replaced_and_their_sandboxes_live_on() {
    require!(needs_tier("process"));
    let ground = Ground::new();
    let daemon = &ground.daemon;
    daemon.shell("container", "echo kept > file");
    daemon.post("/v1/sandboxes", json!({"sandbox": "process", "tier": "process", "allow_downgrade": true}));
    daemon.shell("process", "echo kept > file");
    let us = i32::try_from(daemon.pid()).unwrap();
    let mark = format!("fork-server {}", daemon.home().state_dir().display());
    let servers =
        || -> Vec<i32> { processes_with(&mark).into_iter().filter(|pid| parent(*pid) == Some(us)).collect() };
    for round in 0..2 {
        let before = until_some("both are there", || Some(servers()).filter(|found| found.len() == 2));
        for server in &before {
            kill(*server);
        }
        until("they are gone", || !servers().iter().any(|pid| before.contains(pid)));
        for &tier in tiers() {
            let body = json!({"command": "echo once", "tier": tier, "allow_downgrade": true});
            assert_eq!(daemon.post("/v1/runs", body)["stdout"], "once\n", "round {round}");
        }
        for name in tiers() {
            assert_eq!(daemon.shell(name, "cat file"), "kept\n", "round {round}");
        }
    }
}

#[test]
fn a_killed_process_of_a_guest_ends_its_run_and_not_the_sandbox() {
    let ground = Ground::new();
    let daemon = &ground.daemon;
    let marker = format!("79403{:07}", std::process::id());
    daemon.shell("box", "true");
    let agent = ground.agent("box");
    let run = daemon.exec("box", json!({"argv": ["sleep", marker], "wait": "0s"}));
    let sleeper = until_some("it sleeps", || processes_with(&format!("sleep {marker}")).first().copied());
    kill(sleeper);
    let ended = wait(daemon, &run);
    assert_eq!((&ended["state"], &ended["signal"]), (&json!("killed"), &json!(9)), "{ended}");
    assert_eq!(daemon.shell("box", "echo goes on"), "goes on\n");
    assert_eq!(ground.agent("box"), agent, "it is the same sandbox");
    assert!(Path::new(&format!("/proc/{agent}")).exists());
}

/// Prints what names its network namespace for ever: numbers of namespaces are used again, this is not.
const NAME_OF_NETWORK: &str = "import socket, sys, time
asked = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
print(int.from_bytes(asked.getsockopt(socket.SOL_SOCKET, 71, 8), 'little'), flush=True)
asked.close()
time.sleep(float(sys.argv[1]))";

#[test]
fn a_network_that_is_handed_on_is_never_shared_and_goes_with_whoever_keeps_it() {
    let mut ground = Ground::new();
    let body = |seconds: &str, wait: &str| json!({"argv": ["python3", "-c", NAME_OF_NETWORK, seconds], "wait": wait});
    let once = |daemon: &TestDaemon| {
        let run = daemon.post("/v1/runs", body("0", "60s"));
        run["stdout"].as_str().unwrap().trim().to_owned()
    };
    for round in 0..2 {
        // Some are kept for others by now.
        for _ in 0..3 {
            once(&ground.daemon);
        }
        let job = ground.daemon.post("/v1/runs", body("600", "0s"))["run_id"].as_str().unwrap().to_owned();
        let in_use = until_some("it says where it is", || {
            let logs = ground.daemon.get(&format!("/v1/runs/{job}/logs?stream=stdout"));
            let name = logs["stdout"]["text"].as_str().unwrap().trim().to_owned();
            Some(name).filter(|name| !name.is_empty())
        });
        for _ in 0..3 {
            assert_ne!(once(&ground.daemon), in_use, "round {round}: two live in one");
        }
        // The one who knows which are in use, and which are not, dies.
        let us = i32::try_from(ground.daemon.pid()).unwrap();
        let mark = format!("fork-server {}", ground.daemon.home().state_dir().display());
        let server = processes_with(&mark).into_iter().find(|pid| parent(*pid) == Some(us)).unwrap();
        kill(server);
        until("it is gone", || !processes_with(&mark).contains(&server));
        for _ in 0..3 {
            assert_ne!(once(&ground.daemon), in_use, "round {round}: two live in one");
        }
        // And then everybody; whoever looks for namespaces afterwards finds none (see `Ground`).
        ground.daemon.kill();
        ground.daemon.launch();
        once(&ground.daemon);
    }
}
