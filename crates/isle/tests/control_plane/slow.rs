//! Callers that keep connections without using them: heads and bodies that come a byte at a time, or
//! never. Meanwhile others are served, and in the end the connections are the daemon's again.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::harness::until;
use crate::support::{JSON, Raw, Target};

/// A byte that often; well within any single wait of the daemon.
const PACE: Duration = Duration::from_millis(500);
/// Longer than the daemon waits for anybody on a busy machine.
const PATIENCE: Duration = Duration::from_secs(80);

/// Goes on with a request a byte at a time until it is cut off; gives what came back.
fn trickle(mut stream: TcpStream, start: &str) -> Raw {
    stream.write_all(start.as_bytes()).unwrap();
    stream.set_read_timeout(Some(PACE)).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut seen = [0; 1];
    loop {
        assert!(Instant::now() < deadline, "nobody cut it off");
        match stream.peek(&mut seen) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if stream.write_all(b"a").is_err() {
                    break;
                }
            }
            Ok(_) | Err(_) => break,
        }
    }
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Raw::read(stream)
}

fn open_files(target: &Target) -> usize {
    // Only root may look into a process that hides its memory; anybody may count its sockets' ends.
    std::fs::read_dir(format!("/proc/{}/fd", target.daemon.pid())).map_or(0, Iterator::count)
}

#[test]
fn callers_that_take_their_time_are_cut_off_and_told() {
    let target = Target::start();
    target.still_works();
    let before = open_files(&target);
    let (address, bearer) = (target.address.clone(), target.bearer());
    let head = "GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\nX-Slow: ".to_owned();
    let body = format!(
        "POST /v1/sandboxes/evil/exec HTTP/1.1\r\nHost: {address}\r\n{bearer}\r\n{JSON}\r\nContent-Length: 100000\r\n\r\n{{\"command\": \""
    );
    let file = format!(
        "PUT /v1/sandboxes/control/files/content?path=slow HTTP/1.1\r\nHost: {address}\r\n{bearer}\r\nContent-Type: application/octet-stream\r\nContent-Length: 100000\r\n\r\n"
    );
    let mcp = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\n{bearer}\r\n{JSON}\r\nContent-Length: 100000\r\n\r\n["
    );
    std::thread::scope(|scope| {
        let attacks = [("head", head), ("body", body), ("file", file), ("mcp", mcp)].map(|(what, start)| {
            let stream = target.connect();
            (what, scope.spawn(move || trickle(stream, &start)))
        });
        // Many that say nothing at all.
        let silent: Vec<TcpStream> = (0..300).map(|_| target.connect()).collect();
        target.still_works();
        for (what, attack) in attacks {
            let answer = attack.join().unwrap();
            assert_eq!((answer.status(), answer.answers()), (408, 1), "{what}: {}", answer.text());
            assert_eq!(answer.error()["code"], "INVALID_ARGUMENT", "{what}");
        }
        for mut stream in silent {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is closed without a word");
        }
    });
    until("every connection is closed", || open_files(&target) <= before + 8);
    assert_eq!(target.daemon.names(), ["control"]);
    assert_eq!(target.daemon.shell("control", "ls"), "", "nothing of the slow file was kept");
    target.memory_is_bounded("slow callers");
    target.still_works();
}

#[test]
fn more_connections_than_are_taken_wait_and_do_not_keep_the_owner_out() {
    // Our own ends of them count too.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let target = Target::start();
    // More than are served at once on a listener; the rest wait in the kernel.
    let held: Vec<TcpStream> = (0..1100).map(|_| target.connect()).collect();
    // The Unix socket has places of its own.
    assert_eq!(target.daemon.get("/healthz")["status"], "ok");
    drop(held);
    target.still_works();
    target.memory_is_bounded("idle connections");
}
