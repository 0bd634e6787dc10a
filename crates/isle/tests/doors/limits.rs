//! Limits, each exceeded for real: what is refused, how it is told, and that the neighbours and the
//! sandbox itself go on.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, require, until};

fn create(daemon: &TestDaemon, mut settings: Value) {
    settings["sandbox"] = json!("box");
    daemon.post("/v1/sandboxes", settings);
}

#[test]
fn a_command_that_eats_all_memory_is_told_from_one_that_was_killed() {
    let daemon = TestDaemon::start();
    create(&daemon, json!({"memory": "64M"}));
    require!(daemon.needs_enforced("box", "memory_limit"));
    let eat = "dd if=/dev/zero of=/dev/null bs=300M count=1";
    for command in [format!("exec {eat}"), eat.to_owned()] {
        let run = daemon.exec("box", json!({ "command": command }));
        assert_eq!(run["state"], "oom_killed", "{command}: {run}");
        assert!(run["note"].as_str().unwrap().contains("64M"), "the note names the limit: {run}");
    }
    assert_eq!(daemon.shell("box", "echo alive"), "alive\n", "the sandbox outlives its greedy command");
    let own = daemon.exec("box", json!({"command": "exit 137"}));
    assert_eq!((&own["state"], &own["note"]), (&json!("failed"), &Value::Null), "{own}");
}

#[test]
fn a_one_shot_that_eats_all_memory_says_so() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    require!(daemon.needs_enforced("box", "memory_limit"));
    let run = daemon.post(
        "/v1/runs",
        json!({"command": "dd if=/dev/zero of=/dev/null bs=300M count=1", "memory": "64M"}),
    );
    assert_eq!(run["state"], "oom_killed", "{run}");
}

#[test]
fn a_fork_bomb_stops_at_the_limit_and_the_sandbox_stays_usable() {
    let daemon = TestDaemon::start();
    create(&daemon, json!({"pids": 24}));
    require!(daemon.needs_enforced("box", "pids_limit"));
    let bomb = "for i in $(seq 1 60); do sleep 79001 & done; wait";
    let run = daemon.exec("box", json!({"command": bomb, "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    until("no more processes can be made", || {
        let said = daemon.get(&format!("/v1/runs/{id}/logs?stream=stderr")).to_string();
        said.contains("fork") && said.contains("temporarily unavailable")
    });
    let usage = daemon.get("/v1/status?sandbox=box")["detail"]["usage"].clone();
    // Where an rlimit holds it, the agent is not among those it counts.
    assert!(usage["pids"].as_u64().is_none_or(|pids| pids <= 24 + 1), "{usage}");
    daemon.post(&format!("/v1/runs/{id}/kill"), json!({"force": true}));
    assert_eq!(daemon.shell("box", "echo alive"), "alive\n");
    assert_eq!(daemon.shell("other", "for i in 1 2 3; do sleep 0 & done; wait; echo fine"), "fine\n");
}

#[test]
fn a_full_disk_is_an_error_inside_and_a_code_outside() {
    let daemon = TestDaemon::start();
    create(&daemon, json!({"disk": "16M"}));
    require!(daemon.needs_enforced("box", "disk_limit"));
    let fill = daemon.exec("box", json!({"command": "head -c 64M /dev/zero > big"}));
    assert_eq!(fill["state"], "failed", "{fill}");
    assert!(fill["stderr"].as_str().unwrap().contains("No space left"), "{fill}");
    let file = json!({"files": [{"path": "more", "content": "x".repeat(1 << 20)}]});
    let error = daemon.refused("POST", "/v1/sandboxes/box/files/write", Some(&file));
    assert_eq!(error["code"], "NO_SPACE");
    assert_eq!(daemon.shell("box", "ls; rm big; echo room > again; cat again"), "big\nroom\n");
    daemon.post("/v1/sandboxes/box/files/write", file);
}

#[test]
fn a_one_shots_disk_is_limited_too() {
    let daemon = TestDaemon::start();
    let run = daemon.post("/v1/runs", json!({"command": "head -c 64M /dev/zero > big", "disk": "16M"}));
    assert_eq!(run["state"], "failed", "{run}");
    assert!(run["stderr"].as_str().unwrap().contains("No space left"), "{run}");
}

#[test]
fn cpu_time_is_accounted_to_the_run() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done");
    let history = daemon.get("/v1/runs?sandbox=box");
    let run = &history["runs"][0];
    assert!(run["cpu_ms"].as_u64().unwrap() > 0 && run["peak_memory_bytes"].as_u64().unwrap() > 0, "{run}");
}

#[test]
fn what_the_sandbox_refuses_is_listed_with_its_remedy() {
    let daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({"command": "unshare -Ur true; mount -t tmpfs x /mnt; echo went on"}));
    assert_eq!(run["stdout"], "went on\n");
    let violations = run["violations"].as_array().unwrap_or_else(|| panic!("none: {run}"));
    let what: Vec<&str> = violations.iter().map(|violation| violation["what"].as_str().unwrap()).collect();
    assert!(what.contains(&"unshare") && what.contains(&"mount"), "{what:?}");
    for violation in violations {
        assert!(violation["count"].as_u64().unwrap() >= 1, "{violation}");
        assert!(violation["remedy"].as_str().unwrap().len() > 10, "{violation}");
    }
    let clean = daemon.exec("box", json!({"command": "true"}));
    assert!(clean.get("violations").is_none(), "{clean}");
}

#[test]
fn there_is_no_network_but_loopback() {
    let daemon = TestDaemon::start();
    assert_eq!(
        daemon.shell(
            "box",
            "ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '"
        ),
        "lo\n"
    );
    let out = daemon.exec("box", json!({"command": "exec 3<>/dev/tcp/192.0.2.1/53", "timeout": "10s"}));
    assert_eq!(out["state"], "failed", "refused at once, no time-out: {out}");
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let daemon = TestDaemon::start();
    let cases = [
        (json!({"memory": "1M"}), "INVALID_ARGUMENT"),
        (json!({"memory": "12X"}), "INVALID_SIZE"),
        (json!({"disk": "1K"}), "INVALID_ARGUMENT"),
        (json!({"pids": 1}), "INVALID_ARGUMENT"),
        (json!({"cpus": 0}), "INVALID_ARGUMENT"),
        (json!({"cpus": -1}), "INVALID_ARGUMENT"),
        (json!({"image": "no-such-image"}), "INVALID_ARGUMENT"),
        (json!({"tier": "vault"}), "INVALID_ARGUMENT"),
    ];
    for (mut settings, code) in cases {
        settings["sandbox"] = json!("box");
        assert_eq!(daemon.refused("POST", "/v1/sandboxes", Some(&settings))["code"], code, "{settings}");
        settings.as_object_mut().unwrap().remove("sandbox");
        settings["command"] = json!("true");
        assert_eq!(daemon.refused("POST", "/v1/runs", Some(&settings))["code"], code, "{settings}");
    }
    assert!(daemon.names().is_empty());
}
