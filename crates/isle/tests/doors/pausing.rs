//! Standing still and going on: all that runs in a sandbox, whoever started it.

use serde_json::{Value, json};

use crate::contexts::{both_tiers, code, has};
use crate::harness::{TestDaemon, finish, processes_with, until};
use crate::mcp::Client;

fn pause(daemon: &TestDaemon, sandbox: &str) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/pause"), json!({}))
}

fn resume(daemon: &TestDaemon, sandbox: &str) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/resume"), json!({}))
}

fn state(daemon: &TestDaemon, sandbox: &str) -> Value {
    daemon.get(&format!("/v1/status?sandbox={sandbox}"))["sandboxes"][0]["state"].clone()
}

/// Starts something that counts in a file as long as it runs, in the foreground and behind itself.
fn start_counting(daemon: &TestDaemon, sandbox: &str) -> String {
    let counting = "while :; do echo x >> $0; sleep 0.02; done";
    let command = format!("sh -c '{counting}' behind & exec sh -c '{counting}' ahead");
    let run = daemon.exec(sandbox, json!({"command": command, "wait": "0s"}));
    until("both count", || counts(daemon, sandbox).iter().all(|count| *count > 0));
    run["run_id"].as_str().unwrap().to_owned()
}

/// How far both have counted; read without running anything.
fn counts(daemon: &TestDaemon, sandbox: &str) -> [u64; 2] {
    ["ahead", "behind"].map(|file| {
        let answer = daemon.http("GET", &format!("/v1/sandboxes/{sandbox}/files/stat?path={file}"), None);
        if answer.status == 200 { answer.json()["size"].as_u64().unwrap() } else { 0 }
    })
}

/// Those of this daemon's processes that run `word` and are not stopped.
fn running(word: &str) -> Vec<i32> {
    let mut pids = processes_with(word);
    pids.retain(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['T', 't', 'Z', 'X']))
    });
    pids
}

#[test]
fn everything_in_a_paused_sandbox_stands_still_and_goes_on_when_resumed() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let run = start_counting(&daemon, sandbox);
        let paused = pause(&daemon, sandbox);
        assert_eq!(paused["state"], "paused", "{paused}");
        assert!(paused["processes"].as_u64().unwrap() >= 2, "{paused}");
        let stood = counts(&daemon, sandbox);
        assert_eq!(state(&daemon, sandbox), "paused");
        // As much time passes as another sandbox needs for a few commands.
        for _ in 0..5 {
            daemon.shell("other", "sleep 0.05");
        }
        assert_eq!(counts(&daemon, sandbox), stood, "nothing counts, and files can be looked at");
        assert_eq!(pause(&daemon, sandbox)["state"], "already_paused");
        assert_eq!(resume(&daemon, sandbox)["state"], "running");
        until("both go on", || {
            let now = counts(&daemon, sandbox);
            now[0] > stood[0] && now[1] > stood[1]
        });
        assert_eq!(resume(&daemon, sandbox)["state"], "already_running");
        assert_eq!(state(&daemon, sandbox), "running");
        daemon.post(&format!("/v1/runs/{run}/kill"), json!({"force": true}));
    }
    let told = daemon.get("/v1/events/history?sandbox=box&kind=sandbox_paused&kind=sandbox_resumed");
    assert_eq!(told["events"].as_array().unwrap().len(), 2, "{told}");
    let error = daemon.refused("POST", "/v1/sandboxes/nobody/pause", Some(&json!({})));
    assert_eq!(error["code"], "SANDBOX_NOT_FOUND");
}

#[test]
fn nothing_is_started_in_a_paused_sandbox_unless_the_call_resumes_it() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        daemon.shell(sandbox, "echo kept > file");
        pause(&daemon, sandbox);
        for (path, body) in [
            ("exec", json!({"command": "touch ran"})),
            ("code", json!({"language": "shell", "code": "touch ran"})),
            ("jobs", json!({"command": "touch ran"})),
            ("commands", json!({"commands": [{"command": "touch ran"}]})),
        ] {
            let answer = daemon.http("POST", &format!("/v1/sandboxes/{sandbox}/{path}"), Some(&body));
            assert_eq!((answer.status, answer.code().as_str()), (409, "PAUSED"), "{path}");
        }
        let error = daemon.refused(
            "POST",
            &format!("/v1/sandboxes/{sandbox}/exec"),
            Some(&json!({"command": "true"})),
        );
        assert!(error["next_steps"].to_string().contains("resume"), "{error}");
        let read = daemon.get(&format!("/v1/sandboxes/{sandbox}/files/read?path=file"));
        assert_eq!(read["content"], "kept\n", "files can be used: {read}");
        let output = finish(&mut daemon.isle(&["exec", sandbox, "--", "true"]));
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("PAUSED"), "{output:?}");
        let run = daemon.exec(sandbox, json!({"command": "ls", "resume": true}));
        assert_eq!(run["stdout"], "file\n", "{run}");
        assert_eq!(state(&daemon, sandbox), "running");
    }
}

#[test]
fn a_pause_outlives_the_daemon_and_destroying_ends_it() {
    let mut daemon = TestDaemon::start();
    let marker = format!("78661{:07}", std::process::id());
    let sandboxes = both_tiers(&daemon);
    for (number, &sandbox) in sandboxes.iter().enumerate() {
        // Only in the environment of the shell, and an argument of those that sleep.
        let body = json!({"command": "sleep $MARK & sleep $MARK", "env": {"MARK": marker}, "wait": "0s"});
        daemon.exec(sandbox, body);
        until("both sleep", || processes_with(&format!("sleep {marker} ")).len() == 2 * (number + 1));
        let paused = pause(&daemon, sandbox);
        assert!(paused["processes"].as_u64().unwrap() >= 2, "{paused}");
    }
    until("all are stopped", || running(&marker).is_empty());
    daemon.kill();
    daemon.launch();
    for sandbox in &sandboxes {
        assert_eq!(state(&daemon, sandbox), "paused");
        let exec = json!({"command": "true"});
        assert_eq!(
            daemon.refused("POST", &format!("/v1/sandboxes/{sandbox}/exec"), Some(&exec))["code"],
            "PAUSED"
        );
    }
    assert!(running(&marker).is_empty(), "all are still stopped");
    daemon.terminate();
    daemon.launch();
    assert_eq!(resume(&daemon, "box")["state"], "running");
    until("what was stopped goes on", || !running(&marker).is_empty());
    pause(&daemon, "box");
    assert_eq!(daemon.shell("other", "echo fine"), "fine\n");
    daemon.succeeds(&[&["rm"], &sandboxes[..]].concat());
    assert!(processes_with(&marker).is_empty(), "the answer comes when all is gone");
}

#[test]
fn what_had_stopped_by_itself_stays_so_and_contexts_remember() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let marker = format!("78662{:07}", std::process::id());
        daemon.shell(sandbox, "echo 'kill -STOP $$; exec sleep 3000' > script");
        // Only an argument of the one that stops.
        let body = json!({"command": "sh script $MARK & wait", "env": {"MARK": marker}, "wait": "0s"});
        let run = daemon.exec(sandbox, body);
        let id = run["run_id"].as_str().unwrap().to_owned();
        let stopped = format!("sh script {marker} ");
        until("it has stopped itself", || {
            processes_with(&stopped).len() == 1 && running(&stopped).is_empty()
        });
        if has(&daemon, "python3") {
            code(&daemon, sandbox, json!({"code": "x = 41", "language": "python", "context": "c"}));
        }
        pause(&daemon, sandbox);
        let refused =
            daemon.http("POST", &format!("/v1/sandboxes/{sandbox}/contexts/c/restart"), Some(&json!({})));
        assert_eq!(refused.code(), "PAUSED");
        resume(&daemon, sandbox);
        if has(&daemon, "python3") {
            let value = code(&daemon, sandbox, json!({"code": "x + 1", "context": "c"}));
            assert!(value.to_string().contains("42"), "{value}");
        }
        assert!(running(&stopped).is_empty(), "it was not let go on");
        daemon.post(&format!("/v1/runs/{id}/kill"), json!({"force": true}));
        until("killing reaches it", || processes_with(&stopped).is_empty());
    }
}

#[test]
fn a_paused_sandbox_keeps_its_idle_time_and_not_its_ttl() {
    let daemon = TestDaemon::start_with(&[("ISLE_SWEEP_INTERVAL", "100ms")]);
    for (name, settings) in [
        ("idle", json!({"sandbox": "idle", "idle": "1s"})),
        ("paused", json!({"sandbox": "paused", "idle": "1s"})),
        ("brief", json!({"sandbox": "brief", "ttl": "2s"})),
    ] {
        daemon.post("/v1/sandboxes", settings);
        if name != "idle" {
            pause(&daemon, name);
        }
    }
    until("those whose time is up are gone", || daemon.names() == ["paused"]);
    resume(&daemon, "paused");
    until("its time goes on when it does", || daemon.names().is_empty());
}

#[test]
fn a_model_and_the_command_line_pause_and_resume() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    assert_eq!(daemon.succeeds(&["pause", "box"]), "box  paused\n");
    assert_eq!(daemon.succeeds(&["pause", "box"]), "box  already paused\n");
    assert!(daemon.succeeds(&["ls"]).contains("paused"));
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "core,lifecycle"]);
    let refused = client.call("exec", json!({"sandbox": "box", "command": "true"}));
    assert!(refused.to_string().contains("PAUSED"), "{refused}");
    let answer = client.call("resume", json!({"sandbox": "box"}))["structuredContent"].clone();
    assert_eq!(answer["state"], "running", "{answer}");
    assert_eq!(client.call("pause", json!({"sandbox": "box"}))["structuredContent"]["state"], "paused");
    assert_eq!(daemon.succeeds(&["resume", "box"]), "box  running\n");
    daemon.shell("box", "true");
}
