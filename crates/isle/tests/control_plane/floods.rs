//! Floods: frames of HTTP/2, headers and trailers without end at both TCP listeners, and a malicious client
//! of MCP with huge ids and cancellations without end. Each costs bounded memory and nobody else anything.

use std::io::Write;

use serde_json::json;

use crate::harness::{McpClient, until};
use crate::redirects::hostile;
use crate::support::{Raw, Target};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Its name, what is sent, what is sent again and again, and the statuses it may be answered with.
type Flood = (&'static str, Vec<u8>, Vec<u8>, &'static [u16]);

fn floods(host: &str) -> Vec<Flood> {
    let settings = [PREFACE, &frame(4, 0, 0, &[])].concat();
    let open = [&settings[..], &frame(1, 0, 1, b"\x82\x86\x84")].concat();
    let head = format!("POST /mcp HTTP/1.1\r\nHost: {host}\r\n");
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n");
    vec![
        ("continuations", open.clone(), frame(9, 0, 1, &[b'x'; 4096]), &[400]),
        ("resets", open, [frame(1, 4, 3, b"\x82"), frame(3, 0, 3, &[0, 0, 0, 8])].concat(), &[400]),
        ("settings", settings.clone(), frame(4, 0, 0, &[0, 3, 0, 0, 0, 9]), &[400]),
        ("pings", settings, frame(6, 0, 0, &[0; 8]), &[400]),
        ("headers", head.clone().into_bytes(), b"X-Flood: 0123456789abcdef\r\n".to_vec(), &[431]),
        ("one long header", format!("{head}X-Flood: ").into_bytes(), vec![b'x'; 4096], &[431]),
        ("cookies", head.into_bytes(), b"Cookie: isle_ticket=x\r\n".to_vec(), &[431]),
        // The guard answers before the body is read, so a refusal is what it is.
        ("trailers", chunked.into_bytes(), b"X-Late: 0123456789abcdef\r\n".to_vec(), &[400, 401, 403, 415]),
    ]
}

#[test]
fn floods_at_either_listener_are_answered_once_and_cost_nobody_anything() {
    let target = Target::start();
    let mut listeners = vec![target.address.clone()];
    if target.daemon.offers("container") {
        hostile(&target.daemon);
        let minted = target.daemon.post("/v1/sandboxes/box/ports/8000/url", json!({}));
        listeners.push(minted["address"].as_str().unwrap().to_owned());
    }
    for address in &listeners {
        for (what, begin, again, statuses) in floods(address) {
            let mut stream = target.connect_to(address);
            let mut sent = stream.write_all(&begin);
            for _ in 0..20_000 {
                // Who is answered is not read any further.
                sent = sent.and_then(|()| stream.write_all(&again));
                if sent.is_err() {
                    break;
                }
            }
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let answer = Raw::read(stream);
            // A reset may take the answer along; more than one answer never comes.
            assert!(answer.answers() <= 1, "{what} at {address}: {}", answer.text());
            if answer.answers() == 1 {
                assert!(statuses.contains(&answer.status()), "{what} at {address}: {}", answer.text());
            }
        }
    }
    target.memory_is_bounded("floods");
    target.still_works();
}

/// After a request that asks for another protocol and does not get it, nothing on the connection is looked at
/// any more: it is not read as a request either.
#[test]
fn nothing_is_smuggled_behind_an_upgrade_that_did_not_happen() {
    let target = Target::start();
    let (address, bearer) = (&target.address, target.bearer());
    let body = r#"{"command": "true"}"#;
    let hidden = format!(
        "POST /v1/sandboxes/smuggled/exec HTTP/1.1\r\nHost: {address}\r\n{bearer}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len(),
        body.len(),
    );
    for upgrade in [
        "Upgrade: anything",
        "Connection: upgrade\r\nUpgrade: websocket",
        "Connection: Upgrade\r\nUpgrade: h2c",
    ] {
        let first = format!("GET /v1/sandboxes HTTP/1.1\r\nHost: {address}\r\n{bearer}\r\n{upgrade}\r\n\r\n");
        let answer = target.raw(format!("{first}{hidden}").as_bytes());
        assert_eq!((answer.answers(), answer.status()), (2, 200), "{upgrade}: {}", answer.text());
        assert!(answer.text().contains("HTTP/1.1 400 "), "{upgrade}: {}", answer.text());
    }
    assert!(target.daemon.names().is_empty());
    target.still_works();
}

#[test]
fn huge_ids_and_cancellations_without_end_hold_up_nobody() {
    let target = Target::start();
    let (mut client, _) = McpClient::initialized(&target.daemon, "2025-11-25");
    let ping = |id: &str| format!(r#"{{"jsonrpc": "2.0", "id": {id}, "method": "ping"}}"#).into_bytes();
    // An id is a number or a text; whatever else it is, the session goes on.
    let long = format!("\"{}\"", "i".repeat(1 << 20));
    let ids = [
        long.as_str(),
        "-1",
        "9223372036854775807",
        "18446744073709551616",
        "1e400",
        "1.5",
        "true",
        "[[[[1]]]]",
        "{\"a\": {\"b\": 1}}",
        "\"\\u0000\"",
        "\"\"",
    ];
    let mut answers = 0;
    for (number, id) in ids.into_iter().enumerate() {
        client.send_line(&ping(id));
        let next = format!("next {number}");
        client.send_line(&ping(&format!("\"{next}\"")));
        while client.next()["id"] != next.as_str() {
            answers += 1;
        }
    }
    assert!(answers <= ids.len(), "no message is answered twice");
    for number in 0..5_000 {
        let reason = if number % 1000 == 0 { "r".repeat(1 << 20) } else { "x".to_owned() };
        let params = json!({"requestId": format!("never {number}"), "reason": reason});
        let notice = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        client.send_line(notice.to_string().as_bytes());
    }
    // Calls that are cancelled as soon as they are made leave nothing behind.
    for number in 0..100 {
        let id = format!("call {number}");
        let params = json!({"name": "exec", "arguments": {"sandbox": "box", "command": "sleep 3000"}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        client.send_line(call.to_string().as_bytes());
        let params = json!({"requestId": id});
        let notice = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        client.send_line(notice.to_string().as_bytes());
    }
    client.send_line(&ping("\"after\""));
    while client.next()["id"] != "after" {}
    until("nothing of them runs", || {
        let runs = target.daemon.get("/v1/runs?limit=200")["runs"].as_array().unwrap().clone();
        runs.iter().all(|run| run["state"] != "running") && target.daemon.get("/v1/health")["running"] == 0
    });
    target.memory_is_bounded("a malicious client");
    target.still_works();
}
