//! Heads that are too large, malformed, of another protocol, or that mean two requests at once. Every
//! one gets exactly one answer, in our shape, and nothing of it is executed.

use crate::support::{JSON, Target};

/// A request over TCP that is complete but for what is put into its head.
fn with(target: &Target, more: &str) -> Vec<u8> {
    format!("GET /v1/sandboxes HTTP/1.1\r\nHost: {}\r\n{}\r\n{more}\r\n", target.address, target.bearer())
        .into_bytes()
}

#[test]
fn heads_that_are_too_large_are_refused() {
    let target = Target::start();
    let many = |count: usize| (0..count).map(|number| format!("X-Flood-{number}: x\r\n")).collect::<String>();
    let cases = [
        ("a header of a megabyte", with(&target, &format!("X-Large: {}\r\n", "x".repeat(1 << 20))), 431),
        (
            "a hundred headers of 10 KiB",
            with(&target, &format!("X-A: {}\r\n", "x".repeat(10_240)).repeat(90)),
            431,
        ),
        ("a flood of headers", with(&target, &many(50_000)), 431),
        ("a few headers too many", with(&target, &many(120)), 431),
        (
            "a header without an end",
            format!("GET / HTTP/1.1\r\nX-Endless: {}", "x".repeat(1 << 20)).into_bytes(),
            431,
        ),
        ("an address of 100 KB", format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000)).into_bytes(), 414),
    ];
    for (what, request, status) in cases {
        let answer = target.raw(&request);
        assert_eq!((answer.status(), answer.answers()), (status, 1), "{what}: {}", answer.text());
        assert_eq!(answer.error()["code"], "TOO_LARGE", "{what}");
    }
    // The same before anybody knows who asks, and many at once.
    let flood = format!("GET / HTTP/1.1\r\n{}", "X: y\r\n".repeat(200_000)).into_bytes();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert_eq!(target.raw(&flood).status(), 431));
        }
    });
    let usual = with(&target, &format!("Connection: close\r\n{}", many(60)));
    assert_eq!(target.raw(&usual).status(), 200, "what clients really send is far from the limit");
    target.memory_is_bounded("large heads");
    target.still_works();
}

#[test]
fn what_is_not_http_is_answered_once_and_not_taken_for_a_request() {
    let target = Target::start();
    let cases: [(&str, Vec<u8>); 11] = [
        ("HTTP/2 with prior knowledge", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec()),
        ("a TLS client", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec()),
        ("a line of garbage", b"hello\r\n\r\n".to_vec()),
        ("an unknown version", b"GET / HTTP/9.9\r\nHost: a\r\n\r\n".to_vec()),
        ("no version", b"GET /v1/sandboxes\r\n\r\n".to_vec()),
        ("a NUL in the address", b"GET /\0 HTTP/1.1\r\n\r\n".to_vec()),
        ("a space before the colon", with(&target, "Content-Length : 0\r\n")),
        ("a folded header", with(&target, "X-A: b\r\n c\r\n")),
        ("a NUL in a header", with(&target, "X-A: b\0c\r\n")),
        ("a header without a name", with(&target, ": x\r\n")),
        ("a method that is none", b"G\x01T / HTTP/1.1\r\n\r\n".to_vec()),
    ];
    for (what, request) in cases {
        let answer = target.raw(&request);
        assert_eq!((answer.status(), answer.answers()), (400, 1), "{what}: {}", answer.text());
        assert_eq!(answer.error()["code"], "INVALID_ARGUMENT", "{what}");
    }
    let switch = with(
        &target,
        "Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n",
    );
    let answer = target.raw(&switch);
    assert_eq!((answer.status(), answer.answers()), (200, 1), "an upgrade nobody offers is not made");
    target.still_works();
}

#[test]
fn a_request_hidden_in_another_is_not_executed() {
    let target = Target::start();
    let head = format!(
        "POST /v1/sandboxes/outer/exec HTTP/1.1\r\nHost: {}\r\n{}\r\n{JSON}\r\n",
        target.address,
        target.bearer()
    );
    let hidden_body = r#"{"command": "true"}"#;
    let hidden = format!(
        "POST /v1/sandboxes/smuggled/exec HTTP/1.1\r\nHost: {}\r\n{}\r\n{JSON}\r\nContent-Length: {}\r\n\r\n{hidden_body}",
        target.address,
        target.bearer(),
        hidden_body.len()
    );
    let both_ways = [
        format!(
            "{head}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
            hidden.len() + 5
        ),
        format!(
            "{head}Transfer-Encoding: chunked\r\nContent-Length: {}\r\n\r\n0\r\n\r\n{hidden}",
            hidden.len() + 5
        ),
        format!(
            "{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{hidden}\r\n0\r\n\r\n",
            hidden.len()
        ),
        format!("{head}Content-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len()),
        format!("{head}Content-Length: 0, {}\r\n\r\n{hidden}", hidden.len()),
        format!("{head}Content-Length: +{}\r\n\r\n{hidden}", hidden.len()),
        format!("{head}Content-Length: -1\r\n\r\n{hidden}"),
        format!("{head}Content-Length: 99999999999999999999999\r\n\r\n{hidden}"),
        format!("{head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{head}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{head}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{hidden}"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n-1\r\n{hidden}"),
        format!("{head}X-A: b\r\n\tTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
    ];
    for request in &both_ways {
        let answer = target.raw(request.as_bytes());
        assert_eq!(answer.answers(), 1, "{request}: {}", answer.text());
        assert!((400..500).contains(&answer.status()), "{request}: {}", answer.text());
        answer.error();
    }
    assert!(target.daemon.names().is_empty(), "{:?}", target.daemon.names());

    // Also when it would be whole either way, on a connection that has served others before.
    let chunked = format!("{:x}\r\n{hidden_body}\r\n0\r\n\r\n", hidden_body.len());
    let length = format!("Content-Length: {}\r\n", hidden_body.len());
    let in_chunks = "Transfer-Encoding: chunked\r\n";
    let before = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", target.address);
    for both in [format!("{head}{length}{in_chunks}"), format!("{head}{in_chunks}{length}")] {
        let answer = target.raw(format!("{both}\r\n{chunked}{hidden}").as_bytes());
        assert_eq!((answer.status(), answer.answers()), (400, 1), "{both}: {}", answer.text());
        assert!(answer.error()["message"].as_str().unwrap().contains("Content-Length"));
        assert!(answer.text().to_lowercase().contains("connection: close"), "{}", answer.text());
        let answer = target.raw(format!("{before}{both}\r\n{chunked}{hidden}").as_bytes());
        assert_eq!(answer.answers(), 2, "{both}: {}", answer.text());
        assert!(answer.text().contains("HTTP/1.1 400"), "{}", answer.text());
    }
    assert!(target.daemon.names().is_empty(), "{:?}", target.daemon.names());
    // Chunks alone are served, and nothing after them on the same connection.
    let answer = target.raw(format!("{head}{in_chunks}\r\n{chunked}{hidden}").as_bytes());
    assert_eq!((answer.status(), answer.answers()), (200, 1), "{}", answer.text());
    assert_eq!(target.daemon.names(), ["outer"]);
    target.daemon.succeeds(&["rm", "outer"]);

    // Two requests after each other on one connection are two requests.
    let plain = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n", target.address);
    let answer = target.raw(format!("{plain}\r\n{plain}Connection: close\r\n\r\n").as_bytes());
    assert_eq!((answer.status(), answer.answers()), (200, 2), "{}", answer.text());
    target.still_works();
}

/// Requests that ask for another protocol and do not get it, or end in an odd place: each is answered, and
/// what follows is a request again.
fn asking_for_more(target: &Target) -> Vec<(&'static str, String)> {
    let head = |line: &str, more: &str| format!("{line} HTTP/1.1\r\nHost: {}\r\n{more}\r\n", target.address);
    vec![
        ("a WebSocket where none is", head("GET /healthz", "Connection: Upgrade\r\nUpgrade: websocket\r\n")),
        ("an upgrade without Connection", head("GET /healthz", "Upgrade: websocket\r\n")),
        ("an upgrade to nothing", head("GET /healthz", "Connection: Upgrade\r\nUpgrade:\r\n")),
        (
            "HTTP/2 in the clear",
            head(
                "GET /healthz",
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n",
            ),
        ),
        ("TLS in the middle", head("OPTIONS *", "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n")),
        (
            "an upgrade with a body",
            head("POST /healthz", "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n")
                + "a\r\n",
        ),
        ("two upgrades", head("GET /healthz", "Upgrade: websocket\r\n").repeat(2)),
        ("an empty line", format!("\r\n\r\n{}", head("GET /healthz", ""))),
        (
            "a body that looks like a head",
            head("POST /healthz", "Content-Length: 18\r\n") + "GET / HTTP/1.1\r\n\r\n",
        ),
    ]
}

#[test]
fn what_follows_a_refused_upgrade_is_read_as_strictly() {
    let target = Target::start();
    let body = r#"{"command": "true"}"#;
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let head = format!(
        "POST /v1/sandboxes/smuggled/exec HTTP/1.1\r\nHost: {}\r\n{}\r\n{JSON}\r\n",
        target.address,
        target.bearer()
    );
    let flawed = [
        format!("{head}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}", chunks.len()),
        format!("{head}Transfer-Encoding: chunked\r\nContent-Length: {}\r\n\r\n{chunks}", chunks.len()),
        format!("{head}Transfer-Encoding: identity, chunked\r\n\r\n{chunks}"),
        format!("{head}Transfer-Encoding: chunked, chunked\r\n\r\n{chunks}"),
        format!("{head}Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"),
        format!("{head}Transfer-Encoding: gzip, chunked\r\n\r\n{chunks}"),
        format!("{head}Transfer-Encoding: ,chunked\r\n\r\n{chunks}"),
        format!("{head}Content-Length: {0}\r\nContent-Length: {0}\r\n\r\n{body}", body.len()),
        format!("{head}Host: {}\r\nContent-Length: {}\r\n\r\n{body}", target.address, body.len()),
        format!("{head}Content-Length: {}\n\r\n{body}", body.len()),
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).replace("\r\n", "\n"),
    ];
    for request in &flawed {
        let answer = target.raw(request.as_bytes());
        assert_eq!((answer.status(), answer.answers()), (400, 1), "{request}: {}", answer.text());
    }
    for (what, before) in asking_for_more(&target) {
        for request in &flawed {
            let answer = target.raw(format!("{before}{request}").as_bytes());
            let text = answer.text();
            assert!(answer.answers() >= 2 && text.contains("HTTP/1.1 400 "), "{what}: {request}: {text}");
            assert!(text.to_lowercase().contains("connection: close"), "{what}: {text}");
        }
        assert!(target.daemon.names().is_empty(), "{what}: {:?}", target.daemon.names());
    }
    // A plain request behind each of them is served as always.
    for (what, before) in asking_for_more(&target) {
        let plain = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", target.address);
        let answer = target.raw(format!("{before}{plain}").as_bytes());
        assert!(
            answer.text().contains("HTTP/1.1 200 ") && answer.answers() >= 2,
            "{what}: {}",
            answer.text()
        );
    }
    target.still_works();
}
