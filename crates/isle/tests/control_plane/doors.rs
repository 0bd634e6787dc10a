//! Who may come in over TCP: nobody by another name, from a foreign page, or without the whole token.

use std::net::TcpStream;

use crate::support::{JSON, Target, refused};
use crate::websocket::handshake;

/// Everything a page could try to reach.
const ROUTES: [&str; 6] = [
    "GET /v1/sandboxes",
    "POST /v1/sandboxes/evil/exec",
    "PUT /v1/sandboxes/evil/files/content?path=a",
    "POST /mcp",
    "GET /v1/session",
    "GET /healthz",
];

#[test]
fn another_name_for_the_server_is_refused_everywhere() {
    let target = Target::start();
    let port = target.address.split(':').nth(1).unwrap();
    let hosts = [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("localhost.evil:{port}"),
        format!("127.0.0.1.evil:{port}"),
        format!("evil@127.0.0.1:{port}"),
        format!("127.0.0.1:{port}@evil"),
        format!("127.0.0.1:{port}.evil"),
        format!("127.0.0.1:{port}, evil"),
        format!("127.1:{port}"),
        format!("2130706433:{port}"),
        format!("0.0.0.0:{port}"),
        format!("127.0.0.1:0{port}"),
        "127.0.0.1:1".to_owned(),
        "127.0.0.1".to_owned(),
        "localhost".to_owned(),
        String::new(),
        "\u{e9}".to_owned(),
    ];
    for line in ROUTES {
        for host in &hosts {
            let answer = target.tcp(line, &[&format!("Host: {host}"), JSON], b"{\"command\": \"true\"}");
            refused(&answer, 403, "FORBIDDEN", &format!("{line} {host}"));
        }
    }
    let bearer = target.bearer();
    let absent = [
        format!("GET /v1/sandboxes HTTP/1.1\r\nConnection: close\r\n{bearer}\r\n\r\n"),
        format!("GET /v1/sandboxes HTTP/1.0\r\n{bearer}\r\n\r\n"),
        format!(
            "GET http://evil/v1/sandboxes HTTP/1.1\r\nConnection: close\r\nHost: {0}\r\n{bearer}\r\n\r\n",
            target.address
        ),
    ];
    for request in &absent {
        let answer = target.raw(request.as_bytes());
        assert_eq!(answer.text().get(9..12), Some("403"), "{request}: {}", answer.text());
        assert_eq!(json_of(&answer.text())["error"]["code"], "FORBIDDEN", "{request}");
    }
    // Two names are no name: the request itself is not read.
    let two = format!("Host: {0}\r\nHost: evil\r\n", target.address);
    let answer = target.raw(format!("GET /v1/sandboxes HTTP/1.1\r\n{two}{bearer}\r\n\r\n").as_bytes());
    assert_eq!((answer.status(), answer.answers()), (400, 1), "{}", answer.text());
    for host in [target.address.clone(), format!("LOCALHOST:{port}"), format!("[::1]:{port}")] {
        assert_eq!(target.tcp("GET /v1/sandboxes", &[&format!("Host: {host}")], b"").status, 200, "{host}");
    }
    assert!(target.daemon.names().is_empty());
    target.still_works();
}

fn json_of(answer: &str) -> serde_json::Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn a_foreign_page_reaches_nothing() {
    let target = Target::start();
    let own = format!("http://{}", target.address);
    let origins = [
        "https://evil.example".to_owned(),
        "null".to_owned(),
        "file://".to_owned(),
        String::new(),
        format!("{own}.evil"),
        format!("{own}/"),
        format!("{own}@evil"),
        own.replace("http", "https"),
        "http://localhost".to_owned(),
        "http://127.0.0.1:1".to_owned(),
        format!("{own} https://evil.example"),
    ];
    for line in ROUTES {
        for origin in &origins {
            let answer = target.tcp(line, &[&format!("Origin: {origin}"), JSON], b"{\"command\": \"true\"}");
            refused(&answer, 403, "FORBIDDEN", &format!("{line} {origin}"));
            assert_eq!(answer.header("access-control-allow-origin"), None, "{line} {origin}");
        }
        let both = [format!("Origin: {own}"), "Origin: https://evil.example".to_owned()];
        let answer = target.tcp(line, &[&both[0], &both[1]], b"");
        refused(&answer, 403, "FORBIDDEN", &format!("{line} with two origins"));
    }
    let asks = ["Origin: https://evil.example", "Access-Control-Request-Method: POST"];
    refused(&target.tcp("OPTIONS /mcp", &asks, b""), 403, "FORBIDDEN", "asking first");

    // A WebSocket is not bound by the rules of pages, so it is the server that has to look.
    for origin in &origins {
        let (status, _) = handshake(connect(&target), &target, &[&format!("Origin: {origin}")]);
        assert_eq!(status, 403, "{origin}");
    }
    assert!(target.daemon.names().is_empty());
    assert_eq!(target.tcp("GET /v1/sandboxes", &[&format!("Origin: {own}")], b"").status, 200);
    assert_eq!(handshake(connect(&target), &target, &[&format!("Origin: {own}")]).0, 101);
    assert_eq!(handshake(connect(&target), &target, &[]).0, 101);
    target.still_works();
}

fn connect(target: &Target) -> TcpStream {
    target.connect()
}

#[test]
fn a_form_cannot_speak_for_its_user() {
    let target = Target::start();
    let body = br#"{"command": "true"}"#;
    for kind in [
        "Content-Type: text/plain",
        "Content-Type: text/plain; application/json",
        "Content-Type: application/x-www-form-urlencoded",
        "Content-Type: multipart/form-data; boundary=x",
        "Content-Type: application/jsonx",
        "Content-Type:",
        "X-Nothing: here",
    ] {
        for line in ["POST /v1/sandboxes/evil/exec", "POST /v1/sandboxes/evil/exec/stream", "POST /v1/runs"] {
            refused(&target.tcp(line, &[kind], body), 415, "INVALID_ARGUMENT", &format!("{line} {kind}"));
        }
    }
    assert!(target.daemon.names().is_empty());
    let kind = "Content-Type: Application/JSON; charset=utf-8";
    assert_eq!(target.tcp("POST /v1/sandboxes/evil/exec", &[kind], body).status, 200);
}

#[test]
fn only_the_whole_token_is_the_token() {
    let target = Target::start();
    let token = &target.token;
    let long = "x".repeat(64 * 1024);
    let swapped: String = token
        .chars()
        .map(|c| if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
        .collect();
    let wrong = [
        String::new(),
        "Authorization:".to_owned(),
        "Authorization: Bearer".to_owned(),
        "Authorization: Bearer ".to_owned(),
        format!("Authorization: {token}"),
        format!("Authorization: Basic {token}"),
        format!("Authorization: Bearer{token}"),
        format!("Authorization: Bearer {swapped}"),
        format!("Authorization: Bearer {token}{token}"),
        format!("Authorization: Bearer {token}x"),
        format!("Authorization: Bearer {token},{token}"),
        format!("Authorization: Bearer \"{token}\""),
        format!("Authorization: Bearer {long}"),
        format!("X-API-Key: {}", &token[1..]),
        format!("Cookie: token={token}"),
        "Authorization: Bearer null".to_owned(),
        "Authorization: Bearer \u{e9}".to_owned(),
    ];
    let host = format!("Host: {}", target.address);
    let ask = |line: &str, header: &str| {
        let headers: Vec<&str> =
            [host.as_str(), header].into_iter().filter(|text| !text.is_empty()).collect();
        crate::harness::http::tcp(&target.address, line, &headers, b"")
    };
    for header in &wrong {
        let answer = ask("GET /v1/sandboxes", header);
        refused(&answer, 401, "UNAUTHENTICATED", &header.chars().take(80).collect::<String>());
        assert!(!answer.text().contains(token.as_str()));
    }
    // A beginning of the token tells nothing about the rest of it.
    for length in 0..token.len() {
        let answer = ask("GET /v1/sandboxes", &format!("Authorization: Bearer {}", &token[..length]));
        assert_eq!(answer.status, 401, "{length} characters of it");
    }
    for place in ["token", "access_token", "authorization", "x-api-key"] {
        let answer = ask(&format!("GET /v1/sandboxes?{place}={token}"), "");
        refused(&answer, 401, "UNAUTHENTICATED", place);
    }
    assert_eq!(ask("GET /v1/sandboxes", &target.bearer()).status, 200);
    assert_eq!(ask("GET /v1/sandboxes", &format!("Authorization: bEaReR {token}")).status, 200);
    target.memory_is_bounded("wrong tokens");
}
