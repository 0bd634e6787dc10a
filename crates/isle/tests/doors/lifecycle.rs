//! Sandboxes by name: made on first use and only once, shown, measured, destroyed and made again.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::harness::{TestDaemon, processes_with, until};
use crate::mcp::Client;

#[test]
fn fifty_first_calls_at_once_make_one_sandbox() {
    let daemon = TestDaemon::start();
    let namespaces: HashSet<String> = std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..50).map(|_| scope.spawn(|| daemon.shell("box", "readlink /proc/self/ns/pid"))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert_eq!(namespaces.len(), 1, "all ran in the same place: {namespaces:?}");
    assert_eq!(daemon.names(), ["box"]);
    let made = daemon.get("/v1/audit?action=create_sandbox");
    assert_eq!(made["rows"].as_array().unwrap().len(), 1, "{made}");
}

#[test]
fn destroying_keeps_the_workspace_and_wiping_removes_it() {
    let daemon = TestDaemon::start();
    let first = sandbox_after(&daemon, "box", "echo kept > file; touch /tmp/gone; echo x > ~/gone");
    let answer = daemon.http("DELETE", "/v1/sandboxes/box", None);
    assert_eq!((answer.status, answer.json()), (200, json!({"sandbox": "box", "workspace": "kept"})));
    assert!(daemon.names().is_empty());
    let second = sandbox_after(&daemon, "box", "cat file; ls -A /tmp ~ > list");
    assert_ne!(first, second, "a new incarnation has a new id");
    assert_eq!(daemon.shell("box", "cat file; cat list"), "kept\n/home/sandbox:\n.cache\n.npm\n\n/tmp:\n");
    let answer = daemon.http("DELETE", "/v1/sandboxes/box", Some(&json!({ "wipe": true })));
    assert_eq!(answer.json()["workspace"], "wiped");
    assert_eq!(daemon.shell("box", "ls -A"), "");
}

#[test]
fn a_workspace_that_outlived_its_sandbox_can_still_be_wiped() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    daemon.succeeds(&["rm", "box"]);
    daemon.succeeds(&["rm", "box", "--wipe"]);
    let again = daemon.refused("DELETE", "/v1/sandboxes/box", Some(&json!({ "wipe": true })));
    assert_eq!(again["code"], "SANDBOX_NOT_FOUND");
    assert_eq!(daemon.shell("box", "ls -A"), "");
}

#[test]
fn destroying_ends_everything_that_runs_and_tells_who_waits() {
    let daemon = TestDaemon::start();
    let marker = format!("78001{:07}", std::process::id());
    let run = daemon
        .exec("box", json!({"command": format!("(setsid sleep {marker} &) ; sleep {marker}"), "wait": "0s"}));
    until("both sleep", || processes_with(&format!("sleep {marker} ")).len() >= 2);
    daemon.succeeds(&["rm", "box"]);
    assert!(processes_with(&marker).is_empty(), "the answer comes when all is gone");
    let id = run["run_id"].as_str().unwrap();
    let ended = daemon.post(&format!("/v1/runs/{id}/wait"), json!({}));
    assert_eq!(ended["state"], "killed", "{ended}");
    assert!(ended["note"].as_str().unwrap().contains("destroyed"), "{ended}");
    let unknown = daemon.refused("DELETE", "/v1/sandboxes/box", None);
    assert_eq!(unknown["code"], "SANDBOX_NOT_FOUND");
}

#[test]
fn callers_that_destroy_at_once_are_all_served() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| daemon.http("DELETE", "/v1/sandboxes/box", None).status)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(
        statuses.contains(&200) && statuses.iter().all(|status| [200, 404].contains(status)),
        "{statuses:?}"
    );
    assert!(daemon.names().is_empty());
}

#[test]
fn status_shows_limits_usage_and_what_is_enforced() {
    let daemon = TestDaemon::start();
    daemon.post(
        "/v1/sandboxes",
        json!({"sandbox": "box", "memory": "256M", "pids": 64, "cpus": 0.5, "disk": "64M"}),
    );
    daemon.shell("box", "head -c 3000000 /dev/urandom > data; sync data");
    let status = daemon.get("/v1/status?sandbox=box");
    let detail = &status["detail"];
    assert_eq!(detail["limits"], json!({"memory": "256M", "cpus": 0.5, "pids": 64, "disk": "64M"}));
    assert_eq!(status["sandboxes"][0]["state"], "running");
    let keys: Vec<&str> =
        detail["containment"].as_array().unwrap().iter().map(|line| line["key"].as_str().unwrap()).collect();
    for key in ["namespaces", "no_network", "seccomp", "no_new_privileges", "disk_limit"] {
        assert!(keys.contains(&key), "{keys:?}");
    }
    let usage = &detail["usage"];
    assert!(usage["disk_bytes"].as_u64().unwrap() > 0, "{usage}");
    if daemon.enforces("box", "memory_limit") {
        assert!(
            usage["memory_bytes"].as_u64().unwrap() > 0 && usage["pids"].as_u64().unwrap() >= 1,
            "{usage}"
        );
        assert!(usage["cpu_ms"].is_u64(), "{usage}");
    }
    let shown = daemon.succeeds(&["status", "box"]);
    assert!(shown.contains("256M") && shown.contains("namespaces"), "{shown}");
}

#[test]
fn a_sandbox_that_exists_with_other_settings_is_left_as_it_is() {
    let daemon = TestDaemon::start();
    let made = daemon.post("/v1/sandboxes", json!({"sandbox": "box", "memory": "256M"}));
    let same = daemon.post("/v1/sandboxes", json!({"sandbox": "box", "memory": "256M"}));
    assert_eq!(made["id"], same["id"], "asking twice is asking once");
    let other = daemon.refused("POST", "/v1/sandboxes", Some(&json!({"sandbox": "box", "memory": "512M"})));
    assert_eq!(other["code"], "ALREADY_EXISTS");
    assert_eq!(daemon.get("/v1/status?sandbox=box")["detail"]["limits"]["memory"], "256M");
}

#[test]
fn a_model_makes_a_sandbox_with_settings_of_its_own_and_none_that_is_held_less() {
    let daemon = TestDaemon::start_with(&[("ISLE_ALLOW_DOWNGRADE", "false")]);
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "core,lifecycle"]);
    for less in [json!({"tier": "process"}), json!({"allow_downgrade": true})] {
        let mut arguments = less;
        arguments["sandbox"] = json!("less");
        let refused = client.call("create", arguments);
        let text = refused["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("FORBIDDEN") && text.contains("Next: "), "{text}");
    }
    assert!(daemon.names().is_empty());
    // An ordinary user's host may hold less than the tier promises, which only a person can accept.
    if rustix::process::geteuid().is_root() {
        let arguments = json!({
            "sandbox": "box", "memory": "64M", "ttl": "2h", "env": {"LEVEL": "3"},
            "files": [{"path": "given", "content": "placed"}],
        });
        let made = client.call("create", arguments)["structuredContent"].clone();
        assert_eq!(
            (&made["name"], &made["state"], &made["runs"]),
            (&json!("box"), &json!("running"), &json!(0))
        );
        assert!(made["id"].is_string() && made["expires_at"].is_string(), "{made}");
        assert_eq!(made["limits"]["memory"], "64M");
        let run = client.call("exec", json!({"sandbox": "box", "command": "cat given; echo $LEVEL"}));
        assert_eq!(run["structuredContent"]["stdout"], "placed3\n", "{run}");
    }
}

#[test]
fn one_shots_leave_nothing_whatever_became_of_them() {
    let daemon = TestDaemon::start();
    daemon.shell("before", "true");
    let quiet = || {
        let health = daemon.get("/v1/health");
        health["one_shots"] == 0 && health["running"] == 0
    };
    let marker = format!("78002{:07}", std::process::id());
    let run = |arguments: Value| daemon.post("/v1/runs", arguments);
    assert_eq!(run(json!({"command": "echo hi"}))["stdout"], "hi\n");
    assert_eq!(run(json!({"command": "exit 9"}))["exit_code"], 9);
    let late =
        run(json!({"command": format!("(setsid sleep {marker} &) ; sleep {marker}"), "timeout": "500ms"}));
    assert_eq!(late["state"], "timed_out");
    let files = json!([{"path": "in/data.txt", "content": "given"}]);
    assert_eq!(run(json!({"command": "cat in/data.txt", "files": files}))["stdout"], "given");
    let bad = json!({"command": "true", "files": [{"path": "../x", "content": "x"}]});
    assert_eq!(daemon.refused("POST", "/v1/runs", Some(&bad))["code"], "INVALID_PATH");
    let fresh = run(json!({"command": "ls -A /workspace /tmp"}));
    assert_eq!(fresh["stdout"], "/tmp:\n\n/workspace:\n", "every one is new");
    until("all one-shots are gone", quiet);
    assert!(processes_with(&marker).is_empty());
    assert_eq!(daemon.names(), ["before"]);
    assert_eq!(daemon.counts().directories.len(), 1, "only the named one is on record");
}

/// Runs something and gives the id of the sandbox it ran in.
fn sandbox_after(daemon: &TestDaemon, name: &str, command: &str) -> String {
    daemon.shell(name, command);
    daemon.sandbox_id(name)
}

#[test]
fn a_sandbox_is_made_with_files_and_variables() {
    let daemon = TestDaemon::start();
    let wish = json!({"sandbox": "box", "env": {"KIND": "made"},
        "files": [{"path": "in/a.txt", "content": "first"}, {"path": "b", "content": "c2Vjb25k", "encoding": "base64"}]});
    daemon.post("/v1/sandboxes", wish);
    assert_eq!(daemon.shell("box", "cat in/a.txt b; echo $KIND"), "firstsecondmade\n");
    for wrong in [
        json!({"sandbox": "other", "files": [{"path": "../x", "content": ""}]}),
        json!({"sandbox": "other", "files": [{"path": "x", "content": "", "mode": "9"}]}),
        json!({"sandbox": "other", "env": {"A=B": "1"}}),
        json!({"sandbox": "other", "env": {"A": "1\u{0}"}}),
    ] {
        let error = daemon.refused("POST", "/v1/sandboxes", Some(&wrong));
        assert!(error["next_steps"].is_array(), "{wrong}: {error}");
        assert!(!daemon.names().contains(&"other".to_owned()), "{wrong}");
    }
    let plan = daemon.home().write("plan.txt", "typed");
    let file = format!("{}:plan.txt", plan.display());
    daemon.succeeds(&["create", "typed", "--file", &file, "--env", "KIND=typed"]);
    assert_eq!(daemon.shell("typed", "cat plan.txt; echo $KIND"), "typedtyped\n");
}
