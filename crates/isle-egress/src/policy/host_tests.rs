use super::*;

fn name(text: &str) -> Result<String, HostError> {
    Name::parse(text).map(|name| name.to_string())
}

#[test]
fn a_name_has_one_canonical_form() {
    for text in ["example.com", "EXAMPLE.com", "example.com.", "eXample.COM."] {
        assert_eq!(name(text).unwrap(), "example.com", "{text}");
    }
    assert_eq!(name("bücher.example").unwrap(), "xn--bcher-kva.example");
    assert_eq!(name("BÜCHER.example").unwrap(), "xn--bcher-kva.example");
    assert_eq!(name("my_service.internal").unwrap(), "my_service.internal");
    assert_eq!(name("0.pool.example").unwrap(), "0.pool.example");
}

#[test]
fn a_name_that_programs_parse_differently_is_rejected() {
    for text in [
        "",
        ".",
        "example.com..",
        ".example.com",
        "a..b",
        "-a.example",
        "a-.example",
        "user@example.com",
        "user:pw@example.com",
        "example.com/",
        "example.com#x",
        "example.com?x",
        "example.com\\x",
        "example.com\0.evil.example",
        "example.com%00.evil.example",
        "exa mple.com",
        "example.com\r\n",
        "ex\u{ad}ample.com",
        "example。com",
        "example．com",
        "ｅxample.com",
        "example.com\u{200b}",
        "127.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "127.0.0.1.",
        "0177.0.0.1",
        "1.2.3.4.5",
        "1.2.3",
        "256.256.256.256",
        "xn--a.example",
        "*.example.com",
        "[::1]",
        "::1",
    ] {
        assert!(Name::parse(text).is_err(), "{text:?}");
    }
    let long = format!("{}.example", "a".repeat(64));
    assert_eq!(name(&long), Err(HostError::TooLong));
    let long = ["abcdefghi"; 26].join(".");
    assert_eq!(name(&long), Err(HostError::TooLong));
}

#[test]
fn an_address_has_one_canonical_form() {
    let address = |text: &str| match Host::parse(text) {
        Ok(Host::Address(address)) => address.to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(address("127.0.0.1"), "127.0.0.1");
    assert_eq!(address("[::1]"), "::1");
    assert_eq!(address("::ffff:127.0.0.1"), "127.0.0.1");
    assert_eq!(address("[::FFFF:7f00:1]"), "127.0.0.1");
    assert_eq!(address("2001:DB8:0::1"), "2001:db8::1");
    for text in [
        "[::1",
        "::1]",
        "[::1%lo]",
        "fe80::1%eth0",
        "fe80::1%25eth0",
        "[127.0.0.1]",
        "01.2.3.4",
        "1:2",
        ":::",
    ] {
        assert!(Host::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_target_is_a_host_and_a_port() {
    let target = |text: &str| Target::parse(text, Some(443)).map(|target| target.to_string());
    assert_eq!(target("Example.com").unwrap(), "example.com:443");
    assert_eq!(target("example.com:8080").unwrap(), "example.com:8080");
    assert_eq!(target("[::1]:80").unwrap(), "[::1]:80");
    assert_eq!(target("::1").unwrap(), "[::1]:443");
    for text in [
        "a.example:",
        "a.example:0",
        "a.example:65536",
        "a.example:+1",
        "a.example:1a",
        "a.example: 1",
        "[::1]x",
        "[::1]:",
        ":80",
    ] {
        assert!(target(text).is_err(), "{text}");
    }
    assert_eq!(Target::parse("example.com", None), Err(HostError::Port));
}

#[test]
fn below_means_whole_labels() {
    let name = |text| Name::parse(text).unwrap();
    let parent = name("example.com");
    for below in ["a.example.com", "b.a.example.com"] {
        assert!(name(below).is_below(&parent), "{below}");
    }
    for other in ["example.com", "badexample.com", "example.com.evil.example", "com"] {
        assert!(!name(other).is_below(&parent), "{other}");
    }
}

/// Every text that is read gives a form that reads as itself, whatever it was.
#[test]
fn parsing_a_canonical_form_changes_nothing() {
    let pieces =
        ["a", "B", ".", "-", "_", "0x", "1", "ü", "。", "@", ":", "[", "]", "%", "xn--", "\0", "*", "/"];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..50_000 {
        let mut text = String::new();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut left = state >> 20;
        for _ in 0..(state >> 60) {
            text.push_str(pieces[usize::try_from(left % pieces.len() as u64).unwrap()]);
            left /= pieces.len() as u64;
        }
        if let Ok(host) = Host::parse(&text) {
            let form = host.to_string();
            assert!(form.is_ascii() && !form.contains(['@', '/', '%', '\0', '*']), "{text:?}");
            assert_eq!(Host::parse(&form).as_ref(), Ok(&host), "{text:?} {form:?}");
        }
    }
}
