//! Network input of a sandbox: hosts, grants, DNS queries, and the first bytes of connections.

use isle_agent::fuzzing::{Answer, Parsed, parse_dns};
use isle_egress::{
    ClientHello, Grant, HeadResult, Host, RequestGuard, RequestRules, Target, check_head,
    parse_proxy_request, server_name,
};

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(host) = Host::parse(text) {
            let form = host.to_string();
            assert!(form.is_ascii() && !form.contains(['@', '/', '%', '\0', '*', ' ']), "{text:?}");
            assert_eq!(Host::parse(&form).ok(), Some(host), "{text:?}");
        }
        if let Ok(grant) = Grant::parse(text) {
            assert_eq!(Grant::parse(&grant.to_string()).ok(), Some(grant), "{text:?}");
        }
        // However a server interprets a matching path, it stays below the granted one.
        let requests = RequestRules::parse("/v1/*", None).unwrap();
        for path in [text.to_owned(), format!("/v1/{text}")] {
            if requests.allow("GET", &path) {
                assert_eq!(read_freely(&path).first().map(String::as_str), Some("v1"), "{path:?}");
            }
        }
    }
    if let Ok(ClientHello::Named(name)) = server_name(bytes) {
        assert!(name.as_str().is_ascii() && !name.as_str().is_empty());
    }
    let target = Target::parse("example.com:80", None).unwrap();
    if let Ok(HeadResult::Whole(head)) = check_head(bytes, &target) {
        assert!(head.length <= bytes.len());
        // A rewritten head is accepted unchanged: nothing is hidden in it.
        let Ok(HeadResult::Whole(again)) = check_head(&head.rewritten, &target) else {
            panic!("{:?}", String::from_utf8_lossy(&head.rewritten));
        };
        assert_eq!(again.length, head.rewritten.len());
    }
    // Verdicts do not depend on how requests are split.
    let verdicts = |size: usize| {
        let mut guard = RequestGuard::default();
        bytes.chunks(size).for_each(|piece| guard.read(piece));
        std::iter::from_fn(|| guard.next_verdict()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(7), verdicts(bytes.len().max(1)));
    if let Some((target, used)) = parse_proxy_request(bytes) {
        assert!(used <= bytes.len() && target.port != 0);
        assert_eq!(Target::parse(&target.to_string(), None).as_ref(), Ok(&target));
        // Later bytes do not change the target.
        assert_eq!(parse_proxy_request(&[bytes, b"\r\n\r\n"].concat()), Some((target, used)));
    }
    if let Parsed::Query(query) = parse_dns(bytes) {
        assert!(query.name.len() <= 255 && query.name.is_ascii());
        for answer in [Answer::Address(std::net::Ipv4Addr::LOCALHOST), Answer::Unknown, Answer::Failure] {
            assert!(query.answered(answer).len() <= bytes.len() + 16);
        }
    }
}

/// The parts of a path as the most lenient server reads them.
fn read_freely(path: &str) -> Vec<String> {
    let mut text = path.to_owned();
    // Some decode twice.
    for _ in 0..2 {
        text = decoded(&text);
    }
    let mut parts: Vec<String> = Vec::new();
    for part in text.split(['/', '\\']) {
        match part.split([';', '?', '#', '\0']).next().unwrap_or_default() {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name.to_owned()),
        }
    }
    parts
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
