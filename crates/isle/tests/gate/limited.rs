//! Grants of some paths or methods, and requests that try to be something else to the server than they are
//! to the gate: odd encodings, headers that name another method or path, bodies that end in two places. The
//! same attacks are made without encryption and where the gate opens it.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{TestDaemon, per_connection, require, until};
use crate::opened::{self, World};
use crate::servers::{Server, allow, hex, needs, plain_python, python, start};
use crate::words;

/// What must not be heard has this word in it.
const EVIL: &str = "evil";

/// Paths that some server reads as another one.
const PATHS: &[&str] = &[
    "/evil",
    "/v1/../evil",
    "/v1/./evil",
    "/v1//evil",
    "//v1/evil",
    "/v1/%2e%2e/evil",
    "/v1/%2E./evil",
    "/v1/.%2e/evil",
    "/v1/..%2fevil",
    "/v1/%2e%2e%2fevil",
    "/v1/..%5cevil",
    "/v1/..\\evil",
    "/v1/..;/evil",
    "/v1/..;a=b/evil",
    "/v1/;/../evil",
    "/v1/a;b/evil",
    "/v1/..%3b/evil",
    "/v1/%252e%252e/evil",
    "/v1/%25%32%65%25%32%65/evil",
    "/v1/.%09./evil",
    "/v1/..%09/evil",
    "/v1/%09/evil",
    "/v1/.%00./evil",
    "/v1/evil%00.txt",
    "/v1/evil%0d%0aX:%20y",
    "/v1/evil%0a",
    "/v1/evil%7f",
    "/v1/%c0%ae%c0%ae/evil",
    "/v1/%c0%ae%c0%ae%c0%afevil",
    "/v1/%c0%afevil",
    "/v1/%e0%80%ae%e0%80%ae/evil",
    "/v1/%e0%80%afevil",
    "/v1/%f0%80%80%afevil",
    "/v1/%c1%9cevil",
    "/v1/%u002e%u002e/evil",
    "/v1/%u2215evil",
    "/v1/%uff0eevil",
    "/v1/%%32%65/evil",
    "/v1/%/evil",
    "/v1/%2/evil",
    "/v1/%zz/evil",
    "/v1/%ef%bc%8e%ef%bc%8e/evil",
    "/v1/..%ef%bc%8fevil",
    "/v1/%e2%80%a6/evil",
    "/v1/%e2%80%8b../evil",
    "/v1/%ff/evil",
    "/v1/.../evil",
    "/v1/evil.",
    "/v1/evil./",
    "/v1/evil%20",
    "/v1/..%20/evil",
    "/v1/%20../evil",
    "/v1/evil%2f..%2f",
    "/v1/evil%3f",
    "/v1/evil%23",
    "/V1/evil",
    "/%76%31/evil",
    "/v1evil",
];

/// Fields that some server takes for the method, the path or the host.
const FIELDS: &[&str] = &[
    "X-HTTP-Method-Override: DELETE",
    "x-http-method-override: DELETE",
    "X_HTTP_Method_Override: DELETE",
    "X-HTTP-Method: DELETE",
    "X-Method-Override: DELETE",
    "X-Original-URL: /evil",
    "X-Original-Uri: /evil",
    "X_Original_URL: /evil",
    "X-Rewrite-URL: /evil",
    "X-Forwarded-Prefix: /evil",
    "X-Forwarded-Path: /evil",
    "X-Forwarded-Uri: /evil",
    "X-Forwarded-Host: evil.test",
    "X-Forwarded-Server: evil.test",
    "Forwarded: host=evil.test",
    "X-Host: evil.test",
    "X-HTTP-Host-Override: evil.test",
    "Destination: /evil",
    "x-amz-copy-source: /evil",
];

/// Fields, and what follows the head, that end a request in two places.
const ENDS: &[(&str, &str)] = &[
    ("Transfer-Encoding: identity, chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked, identity", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked, chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: gzip, chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: \"chunked\"", "0\r\n\r\n"),
    ("Transfer-Encoding:\tchunked,", "0\r\n\r\n"),
    ("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n"),
    ("Content-Length: 0\r\nContent-Length: 0", ""),
    ("Content-Length: +0", ""),
    ("Transfer-Encoding : chunked", "0\r\n\r\n"),
    ("X: y\r\n Transfer-Encoding: chunked", "0\r\n\r\n"),
    ("X: y\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("X: y\rTransfer-Encoding: chunked", "0\r\n\r\n"),
];

/// Every attack, by its name, with the name in it.
fn attacks() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |kind: &str, line: &str, fields: &str, rest: &str| {
        let name = format!("{kind}-{}-", all.len());
        let text = format!("{line} HTTP/1.1\r\nHost: web.test\r\nY: {EVIL}-{name}\r\n{fields}\r\n{rest}");
        all.push((name, text));
    };
    for path in PATHS {
        add("path", &format!("GET {path}"), "", "");
    }
    for field in FIELDS {
        add("field", "GET /v1/a", &format!("{field}\r\n"), "");
    }
    for (field, rest) in ENDS {
        add("end", "GET /v1/a", &format!("{field}\r\n"), rest);
    }
    for line in ["POST /v1/a", "get /v1/a", "GET http://other.test/v1/a", "OPTIONS *", "CONNECT web.test:443"]
    {
        add("line", line, "", "");
    }
    all
}

/// What every program sends.
fn well() -> Vec<(String, String)> {
    ["/v1/", "/v1/a.b-c/~d", "/v1/a%20b", "/v1/%C3%A9?x=%0d%0a/../", "/v1/.well-known/x", "/v1/@a/b:c"]
        .iter()
        .enumerate()
        .map(|(number, path)| {
            let fields = "X-Forwarded-For: 192.0.2.1\r\nX-Request-Id: 7\r\n";
            (format!("well-{number}-"), format!("GET {path} HTTP/1.1\r\nHost: web.test\r\n{fields}\r\n"))
        })
        .collect()
}

fn messages(said: &[(String, String)]) -> String {
    Value::Object(said.iter().map(|(name, text)| (name.clone(), json!(hex(text.as_bytes())))).collect())
        .to_string()
}

/// How each was answered; a few at a time, since what a run prints is bounded.
fn answers(daemon: &TestDaemon, sandbox: &str, say: &str, port: u16, said: &[(String, String)]) -> Value {
    let mut all = serde_json::Map::new();
    for some in said.chunks(16) {
        let heard = python(daemon, sandbox, say, &["web.test", &port.to_string(), &messages(some)]);
        all.extend(heard.as_object().unwrap().clone());
    }
    Value::Object(all)
}

/// None of the attacks is heard, each is denied by its reason where it is answered, and what is granted goes.
fn check(daemon: &TestDaemon, say: &str, port: u16, heard: &dyn Fn() -> Vec<String>) {
    let before = heard().len();
    let heard_back = answers(daemon, "box", say, port, &attacks());
    let through: Vec<String> =
        heard().split_off(before).into_iter().filter(|request| request.contains(EVIL)).collect();
    assert!(through.is_empty(), "{through:#?}");
    for (name, text) in attacks() {
        let answer = heard_back[&name].as_str().unwrap();
        assert!(!answer.contains("HTTP/1.1 200 "), "{text}: {answer}");
        if name.starts_with("field") {
            assert!(answer.contains("reason: override_header\n"), "{text}: {answer}");
        }
        let (path, _) = text["GET ".len()..].split_once(' ').unwrap();
        if name.starts_with("path") && path.starts_with("/v1/") && answer.starts_with("HTTP/1.1 403 ") {
            let told = answer.contains("reason: ambiguous_path\n") && answer.contains("remedy: ");
            assert!(told, "{text}: {answer}");
        }
        if name.starts_with("end") && answer.starts_with("HTTP/1.1 403 ") {
            assert!(answer.contains("reason: ambiguous_request\n"), "{text}: {answer}");
        }
    }
    let heard_back = answers(daemon, "box", say, port, &well());
    for (name, text) in well() {
        assert!(heard_back[&name].as_str().unwrap().ends_with("heard\n"), "{text}: {heard_back:#}");
    }
}

per_connection!(nothing_passes_a_plain_grant_of_a_path_in_disguise);

fn nothing_passes_a_plain_grant_of_a_path_in_disguise() {
    let (daemon, server) = (start(), Server::lenient());
    require!(needs(&daemon, "python3"));
    let port = server.port;
    // Without the gate each is heard.
    for (name, text) in attacks() {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
        let mark = format!("{EVIL}-{name}");
        until(&format!("{mark} is heard"), || server.heard().iter().any(|request| request.contains(&mark)));
    }
    allow(&daemon, "box", &[format!("http://web.test:{port}/v1/* GET"), format!("127.0.0.1:{port}")]);
    check(&daemon, words::SAY, port, &|| server.heard());
}

per_connection!(nothing_passes_an_opened_grant_of_a_path_in_disguise);

fn nothing_passes_an_opened_grant_of_a_path_in_disguise() {
    let world = World::new("right");
    require!(needs(&world.daemon, "python3"));
    let (port, authority) = (world.port, world.authority());
    plain_python(opened::SAY, &["127.0.0.1", &port.to_string(), &messages(&attacks()), &authority]);
    for (name, text) in attacks() {
        let mark = format!("{EVIL}-{name}");
        until(&format!("the control: {text}"), || world.heard().iter().any(|one| one.contains(&mark)));
    }
    world.grant("/v1/* GET");
    check(&world.daemon, opened::SAY, port, &|| world.heard());
    // Where methods are granted and all paths, a header does not choose another method either.
    let hosts = [format!("https://web.test:{port}/* GET"), format!("127.0.0.1:{port}")];
    allow(&world.daemon, "methods", &hosts);
    let some: Vec<(String, String)> = attacks()
        .into_iter()
        .filter(|(name, text)| {
            name.starts_with("field") || name.starts_with("end") || text.contains("%0d%0a")
        })
        .collect();
    let before = world.heard().len();
    let denied = answers(&world.daemon, "methods", opened::SAY, port, &some);
    let through: Vec<String> =
        world.heard().split_off(before).into_iter().filter(|request| request.contains(EVIL)).collect();
    assert!(through.is_empty(), "{through:#?}\n{denied:#}");
    let fine = [("well".to_owned(), "GET /v2/a..b/ HTTP/1.1\r\nHost: web.test\r\n\r\n".to_owned())];
    let heard = answers(&world.daemon, "methods", opened::SAY, port, &fine);
    assert!(heard["well"].as_str().unwrap().ends_with("heard\n"), "{heard:#}");
}
