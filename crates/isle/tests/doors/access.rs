//! Who may come in: over TCP only with the token, only by the server's own name, only from pages that
//! were allowed; over the Unix socket only its owner.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::harness::TestDaemon;
use crate::harness::http::tcp;
use crate::harness::until_some;

/// A daemon that also listens on TCP, where it does, and its token.
fn listening() -> (TestDaemon, String, String) {
    let daemon = TestDaemon::start_with(&[("ISLE_LISTEN", "127.0.0.1:0")]);
    let address = until_some("the daemon says where it listens", || {
        let log = daemon.log();
        let at = log.find("\"tcp\":\"127.0.0.1:")? + "\"tcp\":\"".len();
        Some(log[at..].split('"').next()?.to_owned())
    });
    let token = std::fs::read_to_string(daemon.home().state_dir().join("token")).unwrap();
    (daemon, address, token.trim().to_owned())
}

#[test]
fn nothing_is_answered_over_tcp_without_the_token() {
    let (daemon, address, token) = listening();
    let host = format!("Host: {address}");
    let ask = |line: &str, more: &[&str]| {
        let headers: Vec<&str> = [host.as_str()].into_iter().chain(more.iter().copied()).collect();
        tcp(&address, line, &headers, b"")
    };
    let lines = [
        "GET /v1/sandboxes",
        "POST /v1/sandboxes/box/exec",
        "GET /v1/runs",
        "GET /v1/version",
        "GET /openapi.json",
        "POST /mcp",
        "GET /v1/runs/run_00000000000000000000000000/events",
        "GET /v1/session",
        "POST /v1/shutdown",
    ];
    let wrong = format!("Authorization: Bearer {}x", &token[..token.len() - 1]);
    for line in lines {
        for headers in [&[][..], &["Authorization: Bearer "], &[&wrong], &["Authorization: Basic x"]] {
            let answer = ask(line, headers);
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (401, "UNAUTHENTICATED"),
                "{line} {headers:?}"
            );
            assert!(!answer.text().contains(&token));
        }
    }
    assert_eq!(ask("GET /healthz", &[]).status, 200, "liveness is for everybody");
    for header in [format!("Authorization: Bearer {token}"), format!("X-API-Key: {token}")] {
        assert_eq!(ask("GET /v1/sandboxes", &[&header]).status, 200);
    }
    assert!(daemon.names().is_empty());
    let file = daemon.home().state_dir().join("token");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn other_names_and_foreign_pages_are_turned_away_even_with_the_token() {
    let (_daemon, address, token) = listening();
    let bearer = format!("Authorization: Bearer {token}");
    let ask = |headers: &[&str]| tcp(&address, "GET /v1/sandboxes", headers, b"");
    let host = format!("Host: {address}");
    for wrong in ["Host: evil.example", "Host: localhost", "Host: 127.0.0.1"] {
        let answer = ask(&[wrong, &bearer]);
        assert_eq!((answer.status, answer.code().as_str()), (403, "FORBIDDEN"), "{wrong}");
    }
    for origin in ["Origin: https://evil.example", "Origin: null"] {
        let answer = ask(&[&host, origin, &bearer]);
        assert_eq!((answer.status, answer.code().as_str()), (403, "FORBIDDEN"), "{origin}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let own = format!("Origin: http://{address}");
    assert_eq!(ask(&[&host, &own, &bearer]).status, 200);
}

#[test]
fn the_command_line_reaches_a_daemon_over_tcp() {
    let (daemon, address, token) = listening();
    let isle = |arguments: &[&str]| {
        let mut command = daemon.isle(arguments);
        command.env("ISLE_URL", format!("http://{address}")).env("ISLE_TOKEN", &token);
        crate::harness::finish(&mut command)
    };
    let output = isle(&["exec", "box", "--", "echo", "over tcp"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "over tcp\n", "{output:?}");
    assert_eq!(daemon.names(), ["box"]);
    let mut wrong = daemon.isle(&["ls"]);
    wrong.env("ISLE_URL", format!("http://{address}")).env("ISLE_TOKEN", "x".repeat(43));
    let output = crate::harness::finish(&mut wrong);
    assert!(String::from_utf8_lossy(&output.stderr).contains("UNAUTHENTICATED"), "{output:?}");
}

#[test]
fn an_address_others_can_reach_needs_an_explicit_word() {
    let daemon = TestDaemon::start();
    let home = crate::harness::Home::new();
    let output = crate::harness::finish(&mut home.isle(&["serve", "--listen", "0.0.0.0:0"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("--allow-remote"), "{said}");
    let mode = daemon.socket().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the socket is its owner's alone");
}

#[test]
fn every_route_of_the_description_is_there() {
    let daemon = TestDaemon::start();
    let described = daemon.get("/openapi.json");
    let paths = described["paths"].as_object().unwrap();
    assert!(paths.contains_key("/v1/sandboxes/{sandbox}/exec"), "{:?}", paths.keys());
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            // The events of everything have no end.
            if path.contains("shutdown")
                || path.contains("mcp")
                || path == "/v1/session"
                || path == "/v1/events"
            {
                continue;
            }
            let path =
                path.replace("{sandbox}", "nobody").replace("{run_id}", "run_00000000000000000000000000");
            let body = (method == "post").then(|| json!({}));
            let answer = daemon.http(&method.to_uppercase(), &path, body.as_ref());
            assert_ne!(answer.status, 405, "{method} {path}");
            assert!(answer.status < 500, "{method} {path}: {}", answer.text());
            if answer.status == 404 {
                assert_ne!(answer.code(), "OPERATION_NOT_FOUND", "{method} {path}");
            }
        }
    }
}
