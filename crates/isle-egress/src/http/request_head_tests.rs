use super::*;

fn check(head: &str) -> Result<String, HeadError> {
    let target = Target::parse("example.com:80", None).unwrap();
    match check_head(head.as_bytes(), &target)? {
        HeadResult::Partial => Ok("partial".into()),
        HeadResult::Whole(head) => Ok(String::from_utf8(head.rewritten).unwrap()),
    }
}

#[test]
fn a_request_to_the_granted_host_passes_and_ends_its_connection() {
    for host in ["example.com", "Example.COM", "example.com.", "example.com:80"] {
        let head =
            format!("GET /a?b HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive\r\nAccept: */*\r\n\r\n");
        let passed = format!("GET /a?b HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nConnection: close\r\n\r\n");
        assert_eq!(check(&head), Ok(passed));
    }
    assert_eq!(
        check("GET http://example.com/x HTTP/1.1\r\nHost: example.com\r\n\r\n").unwrap(),
        "GET /x HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"
    );
    let upgrade = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert!(check(upgrade).unwrap().contains("Connection: Upgrade, close\r\n"));
    let other = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n";
    assert_eq!(check(other).unwrap(), "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
    let two = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n";
    assert!(!check(two).unwrap().contains("h2c"));
}

#[test]
fn a_request_to_another_host_or_none_is_rejected() {
    for head in [
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.com.evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.com:81\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@example.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.com\r\nHost: example.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.com\r\nhOsT: evil.example\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
        "GET http://example.com@evil.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
    ] {
        assert_eq!(check(head), Err(HeadError::WrongHost), "{head:?}");
    }
}

#[test]
fn what_servers_parse_differently_is_rejected() {
    for head in [
        "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: +1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : example.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.com\r\n X: folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.com\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.com\r\nX\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.com\r\nX: a\0b\r\n\r\n",
        "GET evil HTTP/1.1\r\nHost: example.com\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        assert!(matches!(check(head), Err(HeadError::Ambiguous(_))), "{head:?}");
    }
}

#[test]
fn other_protocols_are_not_http() {
    for bytes in [
        "CONNECT example.com:80 HTTP/1.1\r\nHost: example.com\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        "\u{16}\u{3}\u{1}",
    ] {
        assert_eq!(check(bytes), Err(HeadError::NotHttp), "{bytes:?}");
    }
    assert_eq!(check(&"A".repeat(LONGEST)), Err(HeadError::NotHttp));
}

#[test]
fn a_head_is_waited_for() {
    let head = "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";
    for end in 0..head.len() {
        assert_eq!(check(&head[..end]).as_deref(), Ok("partial"), "{end}");
    }
}
