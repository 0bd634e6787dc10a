//! The lock of a sandbox: who asks for it runs alone among those who ask, in order.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::contexts::both_tiers;
use crate::harness::{TestDaemon, Watchdog, until};
use crate::named_jobs::{ended, start};

fn locked(daemon: &TestDaemon, sandbox: &str, command: &str) -> String {
    let run = daemon.exec(sandbox, json!({"command": command, "lock": true, "wait": "0s"}));
    run["run_id"].as_str().unwrap().to_owned()
}

fn now(daemon: &TestDaemon, run: &str) -> Value {
    daemon.post(&format!("/v1/runs/{run}/wait"), json!({"timeout": "0s"}))
}

/// Has the lock until the file `go` is there.
const HOLDER: &str = "echo holder >> order; while ! [ -e go ]; do sleep 0.02; done";

#[test]
fn runs_with_lock_never_overlap_and_keep_their_order() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let holder = locked(&daemon, sandbox, HOLDER);
        until("it has the lock", || daemon.shell(sandbox, "cat order 2>/dev/null || true") == "holder\n");
        let one = |number: usize| {
            format!("mkdir alone || echo overlap >> order; echo {number} >> order; sleep 0.05; rmdir alone")
        };
        let mut waiting: Vec<String> = (0..3).map(|number| locked(&daemon, sandbox, &one(number))).collect();
        // Every way to run something takes its turn.
        let job = start(&daemon, sandbox, json!({"name": "four", "command": one(3), "lock": true}));
        assert_eq!(job["state"], "queued", "{job}");
        waiting.push(format!("{sandbox}:four"));
        let code = json!({"code": one(4), "language": "shell", "lock": true, "wait": "0s"});
        let code = daemon.post(&format!("/v1/sandboxes/{sandbox}/code"), code);
        waiting.push(code["run_id"].as_str().unwrap().to_owned());
        let commands = json!({"commands": [{"command": one(5)}], "lock": true, "wait": "0s"});
        let commands = daemon.post(&format!("/v1/sandboxes/{sandbox}/commands"), commands);
        assert_eq!(commands["commands"][0]["state"], "waiting", "{commands}");
        waiting.push(commands["run_id"].as_str().unwrap().to_owned());
        for run in &waiting {
            assert_eq!(now(&daemon, run)["state"], "queued");
        }
        let queued = daemon.get(&format!("/v1/runs?sandbox={sandbox}&state=queued"));
        assert_eq!(queued["runs"].as_array().unwrap().len(), 6, "they are on record as waiting");
        // Without the lock runs go beside it.
        daemon.shell(sandbox, "mkdir alone && echo beside >> order && rmdir alone; touch go");
        for run in waiting.iter().chain([&holder]) {
            assert_eq!(ended(&daemon, run)["state"], "completed");
        }
        assert_eq!(daemon.shell(sandbox, "cat order"), "holder\nbeside\n0\n1\n2\n3\n4\n5\n");
    }
}

#[test]
fn who_leaves_the_line_never_runs_and_holds_nobody_up() {
    let daemon = TestDaemon::start();
    let holder = locked(&daemon, "box", HOLDER);
    let killed = locked(&daemon, "box", "echo killed >> order");
    let forced = locked(&daemon, "box", "echo forced >> order");
    let last = locked(&daemon, "box", "echo last >> order");
    let signal = daemon.refused("POST", &format!("/v1/runs/{killed}/kill"), Some(&json!({"signal": "INT"})));
    assert_eq!(signal["code"], "BUSY", "there is nothing yet a signal could reach");
    let write = daemon.refused("POST", &format!("/v1/runs/{killed}/input"), Some(&json!({"text": "x"})));
    assert_eq!(write["code"], "BUSY");
    daemon.post(&format!("/v1/runs/{killed}/kill"), json!({}));
    daemon.post(&format!("/v1/runs/{forced}/kill"), json!({"force": true}));
    for run in [&killed, &forced] {
        let end = now(&daemon, run);
        assert_eq!((&end["state"], &end["exit_code"]), (&json!("killed"), &Value::Null), "{end}");
        assert!(end["note"].as_str().unwrap().contains("never ran"), "{end}");
    }
    assert_eq!(now(&daemon, &last)["state"], "queued");
    daemon.shell("box", "touch go");
    assert_eq!(ended(&daemon, &last)["state"], "completed");
    assert_eq!(ended(&daemon, &holder)["state"], "completed");
    assert_eq!(daemon.shell("box", "cat order; rm go"), "holder\nlast\n");

    // A sandbox that is destroyed takes its line with it.
    let holder = locked(&daemon, "box", HOLDER);
    let waiting = locked(&daemon, "box", "echo no >> order");
    assert_eq!(now(&daemon, &waiting)["state"], "queued");
    assert_eq!(daemon.http("DELETE", "/v1/sandboxes/box", None).status, 200);
    for run in [&holder, &waiting] {
        assert_eq!(ended(&daemon, run)["state"], "killed");
    }
    assert_eq!(ended(&daemon, &locked(&daemon, "box", "echo anew >> order"))["state"], "completed");
    assert_eq!(daemon.shell("box", "tail -n 1 order"), "anew\n");
}

#[test]
fn a_caller_who_cancels_leaves_the_line() {
    let daemon = TestDaemon::start();
    let holder = locked(&daemon, "default", HOLDER);
    let (mut client, _) = crate::mcp::Client::initialized(&daemon, "2025-11-25");
    let arguments = json!({"command": "echo cancelled >> order", "lock": true});
    let id = client.ask("tools/call", json!({"name": "exec", "arguments": arguments}));
    until("it waits", || daemon.get("/v1/runs?state=queued")["runs"].as_array().unwrap().len() == 1);
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    until("it has left", || daemon.get("/v1/runs?state=queued")["runs"].as_array().unwrap().is_empty());
    assert_eq!(daemon.get("/v1/runs?state=cancelled")["runs"].as_array().unwrap().len(), 1);
    let next = locked(&daemon, "default", "echo next >> order");
    daemon.shell("default", "touch go");
    for run in [&holder, &next] {
        assert_eq!(ended(&daemon, run)["state"], "completed");
    }
    assert_eq!(daemon.shell("default", "cat order"), "holder\nnext\n");
}

#[test]
fn a_command_at_the_terminal_takes_its_turn_and_leaves_the_line_with_its_caller() {
    let daemon = TestDaemon::start();
    let holder = locked(&daemon, "box", HOLDER);
    let queued = || daemon.get("/v1/runs?state=queued")["runs"].as_array().unwrap().len();
    let enter = |word: &str| {
        let command = format!("echo {word} >> order; echo {word}");
        let mut client = daemon.isle(&["exec", "box", "--lock", "--", "sh", "-c", &command]);
        client.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut left = enter("left");
    until("one waits", || queued() == 1);
    let stayed = enter("stayed");
    let _watch = Watchdog::over(&stayed);
    until("both wait", || queued() == 2);
    left.kill().unwrap();
    left.wait().unwrap();
    until("the caller who left takes its run along", || queued() == 1);
    let mut interrupted = enter("interrupted");
    let _other_watch = Watchdog::over(&interrupted);
    until("another waits", || queued() == 2);
    kill_process(Pid::from_child(&interrupted), Signal::INT).unwrap();
    assert_eq!(interrupted.wait().unwrap().code(), Some(130));
    until("so does one who interrupts it", || queued() == 1);
    daemon.shell("box", "touch go");
    let said = stayed.wait_with_output().unwrap();
    assert_eq!((said.status.code(), &said.stdout[..]), (Some(0), &b"stayed\n"[..]));
    assert_eq!(ended(&daemon, &holder)["state"], "completed");
    assert_eq!(daemon.shell("box", "cat order"), "holder\nstayed\n");
}
