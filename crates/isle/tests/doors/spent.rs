//! What single runs took of the machine: CPU time, memory, and bytes from and to disks.

use serde_json::{Value, json};

use crate::contexts::{both_tiers, code};
use crate::harness::TestDaemon;
use crate::mcp::Client;

const MEBIBYTE: u64 = 1 << 20;
/// A shell that says how much it and its children wrote to disks, by the kernel's count; nothing where the
/// kernel does not tell.
const COUNT: &str = "sed -n 's/^write_bytes: //p' /proc/$$/io 2>/dev/null || true";

fn of_run(daemon: &TestDaemon, run: &Value) -> Value {
    daemon.get(&format!("/v1/usage?run_id={}", run["run_id"].as_str().unwrap()))["run"].clone()
}

fn written(daemon: &TestDaemon, run: &Value) -> u64 {
    let usage = of_run(daemon, run);
    assert!(usage["io_read_bytes"].is_u64(), "{usage}");
    usage["io_write_bytes"].as_u64().unwrap_or_else(|| panic!("not known: {usage}"))
}

#[test]
fn what_a_run_moves_from_and_to_disks_is_told_of_that_run() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let command = format!("head -c 2M /dev/zero > file; {COUNT}");
        let run = daemon.exec(sandbox, json!({ "command": command }));
        let by_kernel: Option<u64> = run["stdout"].as_str().unwrap().trim().parse().ok();
        let told = written(&daemon, &run);
        assert!(by_kernel.is_none_or(|bytes| told >= bytes), "{sandbox}: {told}, {run}");
        let counts = by_kernel.is_some_and(|bytes| bytes >= 2 * MEBIBYTE);
        assert!(!counts || told >= 2 * MEBIBYTE, "{sandbox}: {told}");
        let idle = daemon.exec(sandbox, json!({ "command": "true" }));
        assert!(written(&daemon, &idle) < MEBIBYTE, "{sandbox}: another run's bytes are not its own");

        // Nobody waits for this one: it is ended with its run.
        let leaves = "setsid sh -c 'head -c 2M /dev/zero > other; : > done; exec sleep 600' & \
                      until [ -e done ]; do sleep 0.02; done; rm done";
        let left = daemon.exec(sandbox, json!({ "command": leaves }));
        assert_eq!(left["state"], "completed", "{left}");
        assert!(!counts || written(&daemon, &left) >= 2 * MEBIBYTE, "{sandbox}: {}", of_run(&daemon, &left));
        let body = json!({ "commands": [{ "command": "head -c 1M /dev/zero > one" },
            { "command": "head -c 1M /dev/zero > two" }] });
        let several = daemon.post(&format!("/v1/sandboxes/{sandbox}/commands"), body);
        assert!(!counts || written(&daemon, &several) >= 2 * MEBIBYTE, "{sandbox}: {several}");
    }
}

#[test]
fn a_call_of_a_context_is_told_what_it_took_and_not_what_others_did() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let call =
            |text: &str| code(&daemon, sandbox, json!({"code": text, "language": "shell", "context": "sh"}));
        call("true");
        let busy = call(&format!(
            "head -c 2M /dev/zero > file; for ((i = 0; i < 100000; i++)); do :; done; {COUNT}"
        ));
        let usage = of_run(&daemon, &busy);
        assert!(usage["cpu_ms"].as_u64().unwrap() > 0, "{sandbox}: {usage}");
        assert!(usage["peak_memory_bytes"].as_u64().unwrap() > 0, "{sandbox}: {usage}");
        let by_kernel: u64 = busy["stdout"].as_str().unwrap().trim().parse().unwrap_or(0);
        let counts = by_kernel >= 2 * MEBIBYTE;
        assert!(!counts || written(&daemon, &busy) >= 2 * MEBIBYTE, "{sandbox}: {usage}");
        let quiet = of_run(&daemon, &call("true"));
        assert!(quiet["cpu_ms"].as_u64() <= usage["cpu_ms"].as_u64(), "{sandbox}: {quiet}, {usage}");
        assert!(!counts || quiet["io_write_bytes"].as_u64().unwrap() < MEBIBYTE, "{sandbox}: {quiet}");
    }
}

#[test]
fn a_run_that_was_ended_is_told_what_its_whole_tree_took() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        // The shell that is the run only waits; whom it waits for computes until the time is up.
        let command = "sh -c 'while :; do :; done'; true";
        let run = daemon.exec(sandbox, json!({ "command": command, "timeout": "700ms" }));
        assert_eq!(run["state"], "timed_out", "{run}");
        let usage = of_run(&daemon, &run);
        assert!(usage["cpu_ms"].as_u64().unwrap() >= 20, "{sandbox}: {usage}");
    }
}

#[test]
fn what_a_run_took_is_told_at_every_door() {
    let daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({ "command": "head -c 1M /dev/zero > file" }));
    let id = run["run_id"].as_str().unwrap();
    let usage = of_run(&daemon, &run);
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "admin"]);
    let answer = client.call("usage", json!({ "run_id": id }));
    assert_eq!(answer["structuredContent"]["run"], usage, "{answer}");
    drop(client);
    let shown = daemon.succeeds(&["usage", "--run", id]);
    assert!(shown.contains("READ") && shown.contains("WRITTEN"), "{shown}");
    let history: Value = serde_json::from_str(&daemon.succeeds(&["history", "--json"])).unwrap();
    let recorded = &history["runs"][0];
    for name in ["cpu_ms", "peak_memory_bytes", "io_read_bytes", "io_write_bytes"] {
        assert_eq!(recorded[name], usage[name], "{name}: {recorded}");
    }
    let stats = daemon.get("/v1/stats").to_string();
    assert!(stats.contains("isle_run_io_bytes_total"), "{stats}");
}
