//! Output without end.

use serde_json::json;

use crate::arena::{Arena, WILD, marker};
use crate::harness::until;

/// How much has to be seen of the flood. What is kept of it has a fixed size, so more of it shows nothing
/// else; `ISLE_FLOOD_MIB=10240` lets ten gibibytes pass.
const FLOOD_MIB: u64 = 1024;
/// What the daemon's memory may grow by: buffers of two runs, and what the allocator keeps.
const GROWTH: u64 = 96 << 20;

#[test]
fn a_flood_of_output_neither_fills_the_daemon_nor_disturbs_anybody() {
    let wanted =
        std::env::var("ISLE_FLOOD_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(FLOOD_MIB) << 20;
    let arena = Arena::new(json!({}));
    let before = arena.daemon.memory("VmRSS");
    let marker = marker(30);
    let command = format!(": {marker}; cat /dev/zero & exec cat /dev/zero >&2");
    let run = arena.daemon.exec(WILD, json!({"command": command, "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    let total = || {
        let logs = arena.daemon.get(&format!("/v1/runs/{id}/logs?offset=0&limit=1"));
        logs["stdout"]["total_bytes"].as_u64().unwrap_or(0)
            + logs["stderr"]["total_bytes"].as_u64().unwrap_or(0)
    };
    until("it flows", || total() > 64 << 20);
    arena.assert_neighbour_calm();
    until("much of it has passed", || total() > wanted);
    let grown = arena.daemon.memory("VmRSS").saturating_sub(before);
    assert!(grown < GROWTH, "the daemon grew by {grown} bytes");
    arena.daemon.post(&format!("/v1/runs/{id}/kill"), json!({"force": true}));
    let ended = arena.daemon.post(&format!("/v1/runs/{id}/wait"), json!({}));
    assert_eq!((&ended["stdout_truncated"], &ended["stderr_truncated"]), (&json!(true), &json!(true)));
    assert!(ended["stdout"].as_str().unwrap().contains("bytes cut"), "what is missing is told");
    assert!(ended["stdout"].as_str().unwrap().len() < 64 << 10);
    arena.assert_all_gone("cat /dev/zero-not-here");
}

#[test]
fn a_reader_that_does_not_read_holds_its_command_back_and_nobody_else() {
    use std::io::{Read, Write};
    let arena = Arena::new(json!({}));
    let body = json!({"command": "cat /dev/zero"}).to_string();
    let mut stream = std::os::unix::net::UnixStream::connect(arena.daemon.socket()).unwrap();
    let head = format!(
        "POST /v1/sandboxes/{WILD}/exec/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    );
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut first = [0u8; 64];
    stream.read_exact(&mut first).unwrap();
    let before = arena.daemon.memory("VmRSS");
    arena.assert_neighbour_calm();
    let grown = arena.daemon.memory("VmRSS").saturating_sub(before);
    assert!(grown < GROWTH, "the daemon grew by {grown} bytes");
    drop(stream);
    for run in arena.daemon.get("/v1/runs?state=running")["runs"].as_array().unwrap() {
        let id = run["run_id"].as_str().unwrap();
        arena.daemon.post(&format!("/v1/runs/{id}/kill"), json!({"force": true}));
    }
}
