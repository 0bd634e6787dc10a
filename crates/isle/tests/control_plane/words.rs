//! Names, commands and output that speak to a terminal, forge lines or turn text around. They are
//! written out in tables, errors and logs; bytes pass unchanged only where a program's own output was
//! asked for.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, finish};

/// Colour, title, a forged line, a hidden carriage return, turned letters, a C1 control, an invisible mark.
const EVIL: &str = "\u{1b}[31mX\u{1b}]0;title\u{7}\nforged\r\u{202e}txt\u{9b}2J\u{200b}\u{7f}";

/// Fails when something in a text could do more than stand there.
fn harmless(text: &str, what: &str) {
    let bad = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{200b}'..='\u{200f}' | '\u{2066}'..='\u{2069}')
    };
    if let Some(found) = text.chars().find(|c| bad(*c)) {
        panic!("{what}: {found:?} in {text:?}");
    }
    assert!(!text.lines().any(|line| line.starts_with("forged")), "{what}: a forged line in {text:?}");
}

fn said(daemon: &TestDaemon, arguments: &[&str]) -> (String, String) {
    let output = finish(&mut daemon.isle(arguments));
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn tables_and_errors_write_hostile_words_out() {
    let daemon = TestDaemon::start();
    let command = format!("true {EVIL}");
    daemon.exec("box", json!({"argv": ["true", EVIL], "env": {"A": EVIL}}));
    daemon.exec("box", json!({"command": command}));
    let make = format!("mkdir -p \"$(printf '%s' '{EVIL}')\" && touch \"$(printf '%s' '{EVIL}')/x\"");
    daemon.exec("box", json!({"command": make}));
    for arguments in [
        &["history"][..],
        &["ls"],
        &["status", "box"],
        &["audit"],
        &["--json", "history"],
        &["--json", "audit"],
        &["call", "list_files", r#"{"sandbox": "box"}"#],
        &["call", "history", "{}"],
    ] {
        let (stdout, stderr) = said(&daemon, arguments);
        assert!(!stdout.is_empty(), "{arguments:?}: {stderr}");
        harmless(&stdout, &format!("{arguments:?}"));
        harmless(&stderr, &format!("{arguments:?}"));
    }
    let missing = format!("box:{EVIL}/missing");
    let file = format!("{{\"sandbox\": \"box\", \"path\": {}}}", json!(EVIL));
    for arguments in [
        &["exec", EVIL, "--", "true"][..],
        &["status", EVIL],
        &["rm", EVIL],
        &["logs", EVIL],
        &["cp", &missing, "here"],
        &["call", "read_file", &file],
        &["call", EVIL, "{}"],
        &["run", "--memory", EVIL, "--", "true"],
        &["exec", "box", "--", EVIL],
        &["--json", "status", EVIL],
    ] {
        let (stdout, stderr) = said(&daemon, arguments);
        assert!(!stderr.is_empty(), "{arguments:?}: {stdout}");
        harmless(&stderr, &format!("{arguments:?}"));
    }
    let listed = daemon.get("/v1/sandboxes/box/files/list");
    assert_eq!(listed["entries"][0]["path"], EVIL, "programs get the name as it is: {listed}");
}

#[test]
fn output_that_was_asked_for_is_passed_on_byte_for_byte() {
    let daemon = TestDaemon::start();
    let raw = b"\x1b[31mred\x1b[0m\xff\r\n";
    let print = r"printf '\033[31mred\033[0m\377\r\n'";
    let output = finish(&mut daemon.isle(&["exec", "box", "--", "sh", "-c", print]));
    assert_eq!(output.stdout, raw);
    let run = daemon.exec("box", json!({"command": print}));
    let run = run["run_id"].as_str().unwrap();
    let logs = finish(&mut daemon.isle(&["logs", run]));
    let shown = String::from_utf8_lossy(&logs.stdout).into_owned();
    assert!(shown.starts_with("\u{1b}[31mred\u{1b}[0m"), "{shown:?}");
}

#[test]
fn the_daemons_log_has_one_harmless_line_per_event() {
    let daemon = TestDaemon::start_with(&[("ISLE_LOG_HTTP", "true"), ("ISLE_LOG_MCP", "true")]);
    daemon.http("GET", "/v1/status?sandbox=%1b%5B31m%0aforged%e2%80%ae", None);
    daemon.http("GET", "/v1/%1b%5B31m%0aforged%e2%80%ae", None);
    let info = json!({"name": EVIL, "version": EVIL});
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": info,
    });
    let params = json!({"name": "exec", "arguments": {"command": "true", "env": {"A": EVIL}, "sandbox": "box"}, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let headers = [
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "Mcp-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: exec",
    ];
    let answer =
        crate::harness::http::unix_raw(&daemon.socket(), "POST /mcp", &headers, call.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let refused = json!({"sandbox": EVIL, "command": EVIL});
    daemon.http("POST", "/v1/runs", Some(&refused));

    let log = daemon.log();
    assert!(log.contains("tool call") && log.contains("\"request\""), "{log}");
    harmless(&log, "the log");
    for line in log.lines().filter(|line| line.starts_with('{')) {
        serde_json::from_str::<Value>(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    }
    let rows = daemon.get("/v1/audit");
    assert!(rows.to_string().contains("mcp:"), "{rows}");
    let (stdout, _) = said(&daemon, &["audit"]);
    harmless(&stdout, "the audit table");
}
