//! Bulk data, which the kernel moves from socket to socket: it is held to everything that other
//! connections are held to.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, per_connection, require, until};
use crate::servers::{Server, allow, needs, python, start};

/// Sends so many MiB to an echo while it reads them back; says whether they are the same.
const THERE_AND_BACK: &str = r#"
import hashlib, json, os, socket, sys, threading
port, size = int(sys.argv[1]), int(sys.argv[2]) << 20
stream = socket.create_connection(('web.test', port), 60)
piece = os.urandom(1 << 20)
def send():
    for turn in range(size >> 20): stream.sendall(piece)
    stream.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
heard, count = hashlib.sha256(), 0
while chunk := stream.recv(1 << 20): heard.update(chunk); count += len(chunk)
sent = hashlib.sha256()
for turn in range(size >> 20): sent.update(piece)
print(json.dumps([count == size, heard.digest() == sent.digest()]))"#;

/// Reads what comes without end; says how much that was and how it ended.
const DRINK: &str = r#"
import json, socket, sys
port, enough = int(sys.argv[1]), int(sys.argv[2]) << 20
stream, count, buffer = socket.create_connection(('web.test', port), 60), 0, bytearray(1 << 20)
stream.sendall(b'!')
try:
    while got := stream.recv_into(buffer):
        count += got
        if count >= enough: open('ready', 'w').close(); enough = 1 << 60
    end = 'ended'
except OSError as error: end = type(error).__name__
text = json.dumps([count, end])
open('end', 'w').write(text); print(text)"#;

fn grant(daemon: &TestDaemon, port: u16) -> Value {
    let grants = daemon.get("/v1/sandboxes/box/grants");
    let name = format!("web.test:{port}");
    let found = grants["grants"].as_array().unwrap().iter().find(|grant| grant["grant"] == name.as_str());
    found.cloned().unwrap_or_default()
}

per_connection!(bulk_data_passes_whole_is_counted_and_is_reset_when_its_grant_is_taken_back);

fn bulk_data_passes_whole_is_counted_and_is_reset_when_its_grant_is_taken_back() {
    let (daemon, echo, endless) = (start(), Server::echo(), Server::endless());
    require!(needs(&daemon, "python3"));
    let (back, port) = (echo.port, endless.port);
    let hosts = [format!("web.test:{back}"), format!("web.test:{port}"), format!("127.0.0.1:{back},{port}")];
    allow(&daemon, "box", &hosts);
    let same = python(&daemon, "box", THERE_AND_BACK, &[&back.to_string(), "48"]);
    assert_eq!(same, json!([true, true]));
    let counted = grant(&daemon, back);
    assert_eq!((&counted["sent_bytes"], &counted["received_bytes"]), (&json!(48 << 20), &json!(48 << 20)));
    let argv = ["python3", "-c", DRINK, &port.to_string(), "64"].map(str::to_owned);
    daemon.exec("box", json!({ "argv": argv, "wait": "0s" }));
    until("much has come", || daemon.shell("box", "ls").contains("ready"));
    let before = grant(&daemon, port)["received_bytes"].as_u64().unwrap();
    assert!(before >= 64 << 20, "counted as it goes: {before}");
    daemon.succeeds(&["revoke", "box", &hosts[1]]);
    until("it was cut", || daemon.shell("box", "ls").contains("end\n"));
    let end: Value = serde_json::from_str(&daemon.shell("box", "cat end")).unwrap();
    assert_eq!(end[1], "ConnectionResetError", "{end}");
    until("the server has seen the end", || endless.heard().len() == 2);
}

per_connection!(bulk_data_of_a_limited_grant_keeps_its_limits);

fn bulk_data_of_a_limited_grant_keeps_its_limits() {
    let (daemon, endless) = (start(), Server::endless());
    require!(needs(&daemon, "python3"));
    let port = endless.port;
    allow(&daemon, "box", &[format!("127.0.0.1:{port}")]);
    let hosts = [format!("web.test:{port}")];
    daemon.post("/v1/sandboxes/box/grants", json!({ "hosts": hosts, "total": "24M" }));
    let end = python(&daemon, "box", DRINK, &[&port.to_string(), "8"]);
    let count = end[0].as_u64().unwrap();
    assert!(end[1] == "ConnectionResetError" && (8 << 20..=24 << 20).contains(&count), "{end}");
    daemon.succeeds(&["revoke", "box", &hosts[0]]);
    // A pace is kept however much there is: what comes at once is a quarter of a second's.
    daemon.post("/v1/sandboxes/box/grants", json!({ "hosts": hosts, "rate": "4M", "total": "6M" }));
    let began = std::time::Instant::now();
    let end = python(&daemon, "box", DRINK, &[&port.to_string(), "1"]);
    assert!(end[0].as_u64().unwrap() <= 6 << 20, "{end}");
    assert!(began.elapsed().as_millis() > 1000, "it took {:?}", began.elapsed());
}
