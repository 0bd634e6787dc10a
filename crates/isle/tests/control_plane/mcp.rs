//! MCP with guessed sessions, and messages that are too large or say a thing twice, over HTTP and over
//! standard streams.

use serde_json::{Value, json};

use crate::harness::McpClient;
use crate::harness::http::Answer;
use crate::support::{JSON, Target, proper, refused};

const ACCEPT: &str = "Accept: application/json, text/event-stream";

fn hello() -> Value {
    let info = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

fn post(target: &Target, session: Option<&str>, message: &Value) -> Answer {
    let header = session.map(|session| format!("Mcp-Session-Id: {session}"));
    let headers: Vec<&str> = [JSON, ACCEPT].into_iter().chain(header.as_deref()).collect();
    target.tcp("POST /mcp", &headers, message.to_string().as_bytes())
}

#[test]
fn a_session_cannot_be_guessed() {
    let target = Target::start();
    let opened = post(&target, None, &hello());
    assert_eq!(opened.status, 200, "{}", opened.text());
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    assert!(session.len() >= 32, "{session}");
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let guesses = [
        session[..session.len() - 1].to_owned(),
        format!("{session}0"),
        format!("{session},{session}"),
        session.to_uppercase(),
        "00000000-0000-4000-8000-000000000000".to_owned(),
        "1".to_owned(),
        "*".to_owned(),
        "../x".to_owned(),
        "x".repeat(60_000),
    ];
    for guess in guesses.iter().filter(|guess| **guess != session) {
        let shown: String = guess.chars().take(60).collect();
        refused(&post(&target, Some(guess), &ping), 404, "INVALID_ARGUMENT", &shown);
        let header = format!("Mcp-Session-Id: {guess}");
        let answer = target.tcp("GET /mcp", &["Accept: text/event-stream", &header], b"");
        refused(&answer, 404, "INVALID_ARGUMENT", &shown);
        let answer = target.tcp("DELETE /mcp", &[&header], b"");
        assert!(answer.status < 500, "{shown}: {}", answer.text());
    }
    // Ending sessions that are not there has not ended the one that is.
    assert_eq!(post(&target, Some(&session), &ping).status, 200);
    let header = format!("Mcp-Session-Id: {session}");
    let stolen = target.tcp("POST /mcp", &[JSON, ACCEPT, &header, "Authorization: Bearer x"], b"{}");
    refused(&stolen, 401, "UNAUTHENTICATED", "a session is no token");
    target.memory_is_bounded("guessed sessions");
}

#[test]
fn sessions_are_bounded_in_number() {
    let target = Target::start();
    let mut refusals = 0;
    for _ in 0..2100 {
        let answer = post(&target, None, &hello());
        if answer.status == 200 {
            assert_eq!(refusals, 0);
            continue;
        }
        refusals += 1;
        refused(&answer, 429, "BUSY", "one session too many");
    }
    assert_eq!(refusals, 2100 - 2048);
    target.memory_is_bounded("two thousand sessions");
    target.still_works();
}

#[test]
fn hostile_messages_on_standard_streams_are_answered_and_the_session_goes_on() {
    let target = Target::start();
    let (mut client, _) = McpClient::initialized(&target.daemon, "2025-11-25");
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {{"name": "exec", "arguments": {arguments}}}}}"#
        )
    };
    let cases: Vec<(&str, Vec<u8>, Value)> = vec![
        ("a key twice", call(r#"{"command": "true", "command": "touch evil"}"#).into_bytes(), json!(7)),
        ("two ids", br#"{"jsonrpc": "2.0", "id": 7, "id": 8, "method": "ping"}"#.to_vec(), Value::Null),
        (
            "two methods",
            br#"{"jsonrpc": "2.0", "id": 7, "method": "ping", "method": "tools/call"}"#.to_vec(),
            json!(7),
        ),
        ("no UTF-8", [call("\"").as_bytes(), b"\xff\"}}"].concat(), json!(7)),
        ("deep", [vec![b'['; 100_000], vec![b']'; 100_000]].concat(), Value::Null),
        ("millions of values", format!("[{}0]", "0,".repeat(3_000_000)).into_bytes(), Value::Null),
        ("unfinished", b"{\"jsonrpc\": ".to_vec(), Value::Null),
        ("too long", format!("{{\"x\": \"{}\"}}", "x".repeat(20 << 20)).into_bytes(), Value::Null),
        ("no method", br#"{"jsonrpc": "2.0", "id": 7, "params": {}}"#.to_vec(), json!(7)),
    ];
    for (what, line, id) in cases {
        client.send_line(&line);
        let answer = client.next();
        assert!(answer["error"]["code"].as_i64().is_some_and(|code| code < 0), "{what}: {answer}");
        proper(&answer["error"]["data"]);
        assert_eq!(answer.get("id").cloned().unwrap_or_default(), id, "{what}: {answer}");
        client.send_line(br#"{"jsonrpc": "2.0", "id": 9, "method": "ping"}"#);
        assert_eq!(client.next()["id"], 9, "{what}");
    }
    assert!(target.daemon.names().is_empty(), "nothing was executed");
    client.send_line(call(r#"{"command": "echo fine"}"#).as_bytes());
    assert_eq!(client.next()["result"]["structuredContent"]["stdout"], "fine\n");
    target.memory_is_bounded("hostile messages");
}

#[test]
fn hostile_messages_over_http_are_answered_in_our_shape() {
    let target = Target::start();
    let send = |headers: &[&str], body: &[u8]| target.tcp("POST /mcp", headers, body);
    let ping = br#"{"jsonrpc": "2.0", "id": 1, "method": "ping"}"#;
    refused(&send(&[ACCEPT, "Content-Type: text/plain"], ping), 415, "INVALID_ARGUMENT", "a form");
    refused(&send(&[JSON, "Accept: text/html"], ping), 406, "INVALID_ARGUMENT", "a page");
    refused(&target.tcp("PATCH /mcp", &[], b""), 405, "INVALID_ARGUMENT", "another method");
    for body in [&b"[]"[..], b"{}", b"7", b"[{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}]"] {
        let answer = send(&[JSON, ACCEPT], body);
        assert!((400..500).contains(&answer.status), "{}", answer.text());
        proper(&answer.json()["error"]);
    }
    assert!(target.daemon.names().is_empty());
}
