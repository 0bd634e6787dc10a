//! What single runs took of the machine: CPU time, memory, bytes from and to disks, processes, and network.

use serde_json::{Value, json};

use crate::contexts::{both_tiers, code};
use crate::harness::{TestDaemon, until};
use crate::mcp::Client;
use crate::network::{NAMES, Server, allow};

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
    for column in ["READ", "WRITTEN", "NET OUT", "NET IN", "PIDS"] {
        assert!(shown.contains(column), "{column}: {shown}");
    }
    let history: Value = serde_json::from_str(&daemon.succeeds(&["history", "--json"])).unwrap();
    let recorded = &history["runs"][0];
    let nothing =
        json!({ "sent_bytes": 0, "received_bytes": 0, "connections": 0, "denied": 0, "shared": false });
    assert_eq!(usage["network"], nothing, "{usage}");
    for name in ["cpu_ms", "peak_memory_bytes", "io_read_bytes", "io_write_bytes", "network", "peak_pids"] {
        assert_eq!(recorded[name], usage[name], "{name}: {recorded}");
    }
    let stats = daemon.get("/v1/stats").to_string();
    assert!(stats.contains("isle_run_io_bytes_total"), "{stats}");
}

/// A program that says a word to a server and hears it back; then it waits for a file, with the connection
/// open, if it is told one.
fn speaks(port: u16, word: &str, until: Option<&str>) -> Value {
    let waits = until.map_or_else(String::new, |file| format!("until [ -e {file} ]; do sleep 0.02; done"));
    let script =
        format!("exec 3<>/dev/tcp/web.test/{port}; echo {word} >&3; read -r line <&3; echo $line; {waits}");
    json!({ "argv": ["bash", "-c", script] })
}

#[test]
fn what_a_run_moves_through_the_gate_is_told_of_that_run() {
    let (daemon, echo) = (TestDaemon::start_configured(NAMES, &[]), Server::echo());
    let port = echo.port;
    allow(&daemon, "box", &[format!("web.test:{port}/tcp"), format!("127.0.0.1:{port}")]);
    let network = |run: &Value| of_run(&daemon, run)["network"].clone();
    let moved = |sent: u64, connections: u64, denied: u64, shared: bool| {
        json!({ "sent_bytes": sent, "received_bytes": sent, "connections": connections, "denied": denied,
            "shared": shared })
    };
    let one = daemon.exec("box", speaks(port, "hello", None));
    assert_eq!((&one["stdout"], network(&one)), (&json!("hello\n"), moved(6, 1, 0, false)), "{one}");
    // The next has moved nothing, and one that was denied says so.
    let idle = daemon.exec("box", json!({ "command": "true" }));
    assert_eq!(network(&idle), moved(0, 0, 0, false));
    let denied = daemon.exec("box", json!({ "command": "getent hosts nobody.test" }));
    let told = network(&denied);
    assert!(told["denied"].as_u64().unwrap() > 0 && told["connections"] == 0, "{told}");
    assert!(denied["violations"].to_string().contains("nobody.test"), "{denied}");

    // A connection that is open when the run is ended counts with what it moved.
    let mut open = speaks(port, "a-longer-word", Some("never"));
    open["wait"] = json!("0s");
    let open = daemon.exec("box", open);
    let id = open["run_id"].as_str().unwrap();
    until("it was answered", || {
        daemon.get(&format!("/v1/runs/{id}/logs"))["stdout"]["text"] == "a-longer-word\n"
    });
    daemon.post(&format!("/v1/runs/{id}/kill"), json!({}));
    until("it has ended", || of_run(&daemon, &open)["state"] == "killed");
    assert_eq!(network(&open), moved(14, 1, 0, false));

    // Two at the same time: nobody can tell them apart, and nobody pretends to.
    let mut first = speaks(port, "first", Some("go"));
    first["wait"] = json!("0s");
    let first = daemon.exec("box", first);
    let second = daemon.exec("box", speaks(port, "second", None));
    assert_eq!(network(&second)["shared"], true, "{second}");
    daemon.shell("box", "touch go");
    until("the first has ended", || of_run(&daemon, &first)["state"] == "completed");
    assert_eq!(network(&first), moved(6 + 7, 2, 0, true));
    let id = first["run_id"].as_str().unwrap();
    assert!(daemon.succeeds(&["usage", "--run", id]).contains("≤ 13 B"), "{}", of_run(&daemon, &first));

    // What a sandbox moved stays counted when its grants are gone.
    let of_sandbox = || daemon.get("/v1/usage?sandbox=box")["sandboxes"][0].clone();
    let before = of_sandbox();
    assert_eq!(before["network_sent_bytes"], 6 + 14 + 6 + 7, "{before}");
    assert_eq!(before["network_connections"], 4, "{before}");
    daemon.succeeds(&["revoke", "box", &format!("web.test:{port}/tcp")]);
    assert_eq!(of_sandbox()["network_sent_bytes"], before["network_sent_bytes"]);
}

#[test]
fn the_most_processes_and_threads_of_a_run_are_told_of_that_run() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let peak = |run: &Value| of_run(&daemon, run)["peak_pids"].as_u64().unwrap();
        daemon.exec(sandbox, json!({ "command": "sleep 600", "wait": "0s" }));
        let single = daemon.exec(sandbox, json!({ "argv": ["sleep", "0.3"] }));
        assert_eq!(peak(&single), 1, "{sandbox}: others are not its own");
        let many = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait";
        let many = daemon.exec(sandbox, json!({ "command": many }));
        assert_eq!(peak(&many), 10, "{sandbox}");
        let body = json!({ "commands": [{ "command": "true" },
            { "command": "for i in 1 2 3 4; do sleep 1 & done; wait" }] });
        let several = daemon.post(&format!("/v1/sandboxes/{sandbox}/commands"), body);
        assert_eq!(peak(&several), 5, "{sandbox}: {several}");
        let call = json!({ "code": "for i in 1 2 3; do sleep 1 & done; wait", "language": "shell",
            "context": "sh" });
        // The interpreter is one of them.
        assert_eq!(peak(&code(&daemon, sandbox, call)), 4, "{sandbox}");
    }
}
