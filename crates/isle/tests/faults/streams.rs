//! Callers who go away in the middle of a stream, and callers who do not read: what they asked for
//! goes on or ends as promised, and the daemon's memory stays flat.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::json;

use crate::ground::Ground;
use crate::harness::until;

/// What the daemon may grow by, whatever it is asked for: far less than what passes through it.
const GROWTH: u64 = 48 << 20;
const OUTPUT: &str = "head -c 100000000 /dev/zero | tr '\\0' x";

/// Sends a request and reads nothing.
fn send(ground: &Ground, request: &str) -> UnixStream {
    let mut stream = UnixStream::connect(ground.daemon.socket()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

#[test]
fn callers_who_do_not_read_cost_the_daemon_no_memory() {
    let ground = Ground::with(&[("ISLE_DISK", "256M")]);
    ground.daemon.shell("box", &format!("{OUTPUT} > big; mkfifo gate"));
    let before = ground.daemon.memory("VmRSS");
    let command = format!("read go < gate; {OUTPUT}");
    let run = ground.daemon.exec("box", json!({"command": command, "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(send(&ground, &get(&format!("/v1/runs/{id}/events"))));
        streams.push(send(&ground, &get("/v1/sandboxes/box/files/content?path=big")));
    }
    // The same through the command line, which gets every byte or holds the command back.
    let mut client = ground
        .daemon
        .isle(&["exec", "box", "--", "sh", "-c", OUTPUT])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    ground.daemon.shell("box", "echo > gate");
    let ended = ground.daemon.post(&format!("/v1/runs/{id}/wait"), json!({"timeout": "60s"}));
    assert_eq!(ended["stdout_bytes"], 100_000_000, "slow followers hold nobody back: {ended}");
    let after = ground.daemon.memory("VmRSS");
    assert!(after < before + GROWTH, "{before} bytes became {after} bytes");
    assert_eq!(ground.daemon.shell("box", "echo others are served"), "others are served\n");
    let mut first = [0; 17];
    for stream in &mut streams {
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first[..12], b"HTTP/1.1 200");
    }
    drop(streams);
    client.kill().unwrap();
    client.wait().unwrap();
    until("the interactive command ended with its caller", || {
        ground.daemon.get("/v1/health")["running"] == 0
    });
}

#[test]
fn callers_who_go_away_in_the_middle_of_a_stream_leave_nothing_behind() {
    let mut ground = Ground::with(&[("ISLE_DISK", "64M")]);
    ground.daemon.shell("box", "head -c 20000000 /dev/zero > big; echo old > file");
    let command = "echo run >> count; seq 1 20000";
    let body = json!({"command": command}).to_string();
    let before = ground.daemon.memory("VmRSS");
    let begun = |ground: &Ground| -> usize {
        ground.daemon.shell("box", "cat count 2>/dev/null | wc -l").trim().parse().unwrap()
    };
    let mut stayed = 0;
    for round in 0..30 {
        let run = ground.daemon.exec("box", json!({"command": "seq 1 20000; sleep 0.05", "wait": "0s"}));
        let id = run["run_id"].as_str().unwrap();
        let requests = [
            get(&format!("/v1/runs/{id}/events")),
            get("/v1/sandboxes/box/files/content?path=big"),
            // Half of an upload.
            format!(
                "PUT /v1/sandboxes/box/files/content?path=file HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: 100000\r\n\r\n{}",
                "x".repeat(50_000)
            ),
            // A call whose answer nobody waits for.
            format!(
                "POST /v1/sandboxes/box/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ),
        ];
        for (number, request) in requests.iter().enumerate() {
            let mut stream = send(&ground, request);
            if (round + number) % 2 == 0 && number < 2 {
                let mut some = [0; 1000];
                stream.read_exact(&mut some).unwrap();
            }
            // A caller who is gone before anybody looked may never have called; this one stays a while.
            if number == 3 && round % 5 == 0 {
                stayed += 1;
                until("its command has begun", || begun(&ground) >= stayed);
            }
        }
    }
    until("what was begun has ended", || ground.daemon.get("/v1/health")["running"] == 0);
    let count = begun(&ground);
    let runs = ground.daemon.get("/v1/runs?sandbox=box&limit=500&state=completed");
    let recorded = runs["runs"].as_array().unwrap().iter().filter(|run| run["command"] == command).count();
    assert!(
        count == recorded && (stayed..=30).contains(&count),
        "each call was begun or not: {count} ran, {recorded} are recorded"
    );
    assert_eq!(ground.daemon.shell("box", "cat file; ls -A"), "old\nbig\ncount\nfile\n", "no half of a file");
    let after = ground.daemon.memory("VmRSS");
    assert!(after < before + GROWTH, "{before} bytes became {after} bytes");
    ground.restart();
    ground.check(&[]);
    ground.clear();
}
