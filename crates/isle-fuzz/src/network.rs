//! What a sandbox says to the network: hosts, grants, questions about names, and the first words of
//! connections.

use isle_egress::{Grant, HeadResult, Hello, Host, Requests, Target, check_head, server_name, understood};

use crate::dns::{self, Answer, Read};

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
        // Whoever reads a path that fits, in whatever way, stays below what was granted.
        let requests = Requests::parse("/v1/*", None).unwrap();
        for path in [text.to_owned(), format!("/v1/{text}")] {
            if requests.allow("GET", &path) {
                assert_eq!(read_freely(&path).first().map(String::as_str), Some("v1"), "{path:?}");
            }
        }
    }
    if let Ok(Hello::Named(name)) = server_name(bytes) {
        assert!(name.as_str().is_ascii() && !name.as_str().is_empty());
    }
    let target = Target::parse("example.com:80", None).unwrap();
    if let Ok(HeadResult::Whole(head)) = check_head(bytes, &target) {
        assert!(head.length <= bytes.len());
        // What passes on passes again, and as itself: nothing is hidden in it.
        let Ok(HeadResult::Whole(again)) = check_head(&head.rewritten, &target) else {
            panic!("{:?}", String::from_utf8_lossy(&head.rewritten));
        };
        assert_eq!(again.length, head.rewritten.len());
    }
    if let Some((target, used)) = understood(bytes) {
        assert!(used <= bytes.len() && target.port != 0);
        assert_eq!(Target::parse(&target.to_string(), None).as_ref(), Ok(&target));
        // What follows changes nothing of where it goes.
        assert_eq!(understood(&[bytes, b"\r\n\r\n"].concat()), Some((target, used)));
    }
    if let Read::Question(question) = dns::read(bytes) {
        assert!(question.name.len() <= 255 && question.name.is_ascii());
        for answer in [Answer::Address(std::net::Ipv4Addr::LOCALHOST), Answer::Unknown, Answer::Failure] {
            assert!(question.answered(answer).len() <= bytes.len() + 16);
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
