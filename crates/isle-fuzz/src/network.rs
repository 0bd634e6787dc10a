//! What a sandbox says to the network: hosts, grants, questions about names, and the first words of
//! connections.

use isle_egress::{Grant, HeadResult, Hello, Host, Target, check_head, server_name};

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
    if let Read::Question(question) = dns::read(bytes) {
        assert!(question.name.len() <= 255 && question.name.is_ascii());
        for answer in [Answer::Address(std::net::Ipv4Addr::LOCALHOST), Answer::Unknown, Answer::Failure] {
            assert!(question.answered(answer).len() <= bytes.len() + 16);
        }
    }
}
