//! Bodies that are too large, too deep, ambiguous or not what they say they are.

use std::io::Write;

use serde_json::json;

use crate::harness::finish;
use crate::support::{JSON, Raw, Target, proper, refused};
use crate::websocket::{handshake, next_message, text_frame};

/// JSON that must not be read, at any door.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let deep =
        |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000)).into_bytes();
    let tiny = format!("{{\"command\": \"true\", \"argv\": [{}0]}}", "0,".repeat(3_000_000));
    vec![
        ("deep lists", deep("[", "]")),
        ("deep objects", deep("{\"a\":", "}")),
        ("deep and unfinished", vec![b'['; 1_000_000]),
        ("millions of values", tiny.into_bytes()),
        ("a key twice", br#"{"command": "true", "command": "touch /workspace/evil"}"#.to_vec()),
        ("a key twice, once escaped", br#"{"command": "true", "\u0063ommand": "touch evil"}"#.to_vec()),
        ("a key twice inside", br#"{"command": "true", "env": {"A": "1", "A": "2"}}"#.to_vec()),
        ("bytes that are no UTF-8", b"{\"command\": \"echo \xff\xfe\"}".to_vec()),
        ("half a surrogate", br#"{"command": "echo \ud800"}"#.to_vec()),
        (
            "a number without end",
            format!("{{\"command\": \"true\", \"timeout\": 1e{}}}", "9".repeat(1000)).into_bytes(),
        ),
        ("not a number", br#"{"command": "true", "timeout": NaN}"#.to_vec()),
        ("two values", br#"{"command": "true"}{"command": "false"}"#.to_vec()),
        ("a comment", br#"{"command": "true" /* , "user": "root" */}"#.to_vec()),
        ("a NUL after it", b"{\"command\": \"true\"}\0".to_vec()),
        ("nothing", b" ".to_vec()),
    ]
}

#[test]
fn json_that_could_be_read_in_two_ways_is_not_read_at_all() {
    let target = Target::start();
    for (what, body) in hostile() {
        for line in ["POST /v1/sandboxes/evil/exec", "POST /v1/sandboxes/evil/exec/stream", "POST /v1/runs"] {
            refused(&target.tcp(line, &[JSON], &body), 400, "INVALID_ARGUMENT", &format!("{line}: {what}"));
        }
        let accept = "Accept: application/json, text/event-stream";
        let answer = target.tcp("POST /mcp", &[JSON, accept], &body);
        assert_eq!(answer.status, 400, "{what}: {}", answer.text());
        proper(&answer.json()["error"]["data"]);

        let (status, mut socket) = handshake(target.connect(), &target, &[]);
        assert_eq!(status, 101);
        let _ = socket.get_mut().write_all(&text_frame(&body));
        // What is no text at all is not even a message, and ends the connection by the rules of WebSockets.
        match next_message(&mut socket) {
            Some(message) => drop(proper(&message["error"])),
            None => assert_eq!(what, "bytes that are no UTF-8"),
        }
    }
    // Files may come as JSON in a text; that text is read as strictly.
    let inner = r#"{"a": "1", "a": "2"}"#;
    let body = json!({"files": inner}).to_string();
    let answer = target.tcp("POST /v1/sandboxes/evil/files/write", &[JSON], body.as_bytes());
    refused(&answer, 400, "INVALID_ARGUMENT", "a file twice");
    assert!(target.daemon.names().is_empty(), "nothing was made");
    assert_eq!(target.daemon.get("/v1/runs")["runs"], json!([]), "nothing was run");
    target.memory_is_bounded("hostile JSON");
    target.still_works();
}

#[test]
fn what_callers_wrote_is_quoted_in_part_only() {
    let target = Target::start();
    let long = "\u{1b}".repeat(1 << 20);
    for body in [
        json!({"command": "a", "user": long}),
        json!({"command": "a", long.as_str(): 1}),
        json!({"command": "a", "timeout": long}),
    ] {
        let answer = target.tcp("POST /v1/sandboxes/evil/exec", &[JSON], body.to_string().as_bytes());
        assert_eq!(answer.status, 400);
        proper(&answer.json()["error"]);
        assert!(answer.body.len() < 64 * 1024, "{} bytes of answer", answer.body.len());
    }
    target.memory_is_bounded("long words");
}

#[test]
fn bodies_of_a_hundred_megabytes_are_refused_and_the_reason_can_be_read() {
    let target = Target::start();
    let large = vec![b' '; 100 << 20];
    std::thread::scope(|scope| {
        for line in [
            "POST /v1/sandboxes/evil/exec",
            "POST /v1/runs",
            "POST /mcp",
            "POST /v1/sandboxes/evil/files/write",
        ] {
            let (target, large) = (&target, &large);
            scope.spawn(move || refused(&target.tcp(line, &[JSON], large), 413, "TOO_LARGE", line));
        }
    });
    // Without a length, in pieces.
    let mut stream = target.connect();
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: {}\r\n{}\r\n{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n",
        target.address,
        target.bearer()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let piece = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    for _ in 0..100 {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    let answer = Raw::read(stream);
    assert_eq!((answer.status(), answer.error()["code"].as_str()), (413, Some("TOO_LARGE")));

    let (_, mut socket) = handshake(target.connect(), &target, &[]);
    let _ = socket.get_mut().write_all(&text_frame(&large));
    // Whether the reason arrives is up to who sends so much without listening; nothing else does.
    if let Some(message) = next_message(&mut socket) {
        proper(&message["error"]);
    }

    assert!(target.daemon.names().is_empty());
    target.memory_is_bounded("large bodies");
    target.still_works();
}

const BYTES: &str = "Content-Type: application/octet-stream";

#[test]
fn a_refused_upload_can_read_why() {
    let target = Target::start();
    let content = vec![b'x'; 20 << 20];
    let put = |query: &str, headers: &[&str]| {
        let headers: Vec<&str> = [BYTES].iter().chain(headers).copied().collect();
        target.tcp(&format!("PUT /v1/sandboxes/box/files/content?{query}"), &headers, &content)
    };
    refused(&put("path=../x", &[]), 400, "INVALID_PATH", "out of the workspace");
    refused(&put("path=x&user=admin", &[]), 400, "INVALID_ARGUMENT", "no such user");
    refused(&put("path=x&mode=4755", &[]), 400, "INVALID_ARGUMENT", "a mode that is none");
    refused(&put("path=x", &["Authorization: Bearer wrong"]), 401, "UNAUTHENTICATED", "without the token");
    refused(&put("path=x", &["Origin: https://evil.example"]), 403, "FORBIDDEN", "from a foreign page");
    target.daemon.shell("box", "mkdir d");
    refused(&put("path=d", &[]), 409, "IS_DIRECTORY", "onto a directory");
    let answer = target.tcp("PUT /v1/nowhere", &[], &content);
    refused(&answer, 404, "OPERATION_NOT_FOUND", "nowhere");
    let socket = target.daemon.socket();
    let line = "PUT /v1/sandboxes/box/files/content?path=../x";
    let answer = crate::harness::http::unix_raw(&socket, line, &[BYTES], &content);
    refused(&answer, 400, "INVALID_PATH", "over the Unix socket");

    assert_eq!(put("path=x", &[]).status, 200);
    assert_eq!(target.daemon.shell("box", "stat -c %s x; ls"), format!("{}\nd\nx\n", content.len()));
    target.memory_is_bounded("uploads");
}

#[test]
fn files_sent_along_with_a_command_are_bounded() {
    let target = Target::start();
    let run = |size: usize| {
        let file = target.daemon.home().path().join("data");
        std::fs::write(&file, vec![b'x'; size]).unwrap();
        let file = format!("{}:data", file.display());
        finish(&mut target.daemon.isle(&[
            "run",
            "--file",
            &file,
            "--",
            "stat",
            "-c",
            "%s",
            "/workspace/data",
        ]))
    };
    let output = run(8 << 20);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\n", 8 << 20), "{output:?}");
    let output = run((8 << 20) + 3);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("TOO_LARGE") && said.contains("hint: "), "{said}");
}

#[test]
fn half_a_body_does_nothing() {
    let target = Target::start();
    let mut stream = target.connect();
    let head = format!(
        "POST /v1/sandboxes/evil/exec HTTP/1.1\r\nHost: {}\r\n{}\r\n{JSON}\r\nContent-Length: 100\r\n\r\n{{\"command\": \"true\"}}",
        target.address,
        target.bearer()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = Raw::read(stream);
    assert!(target.daemon.names().is_empty());
    target.still_works();
}
