//! How grants are written and read.

use super::*;

fn read(text: &str) -> Result<String, GrantError> {
    Grant::parse(text).map(|grant| grant.to_string())
}

#[test]
fn a_grant_has_one_canonical_form() {
    for (text, form) in [
        ("Example.COM", "example.com:80,443"),
        ("example.com:443", "example.com:443"),
        ("example.com:8080,80,8080/http", "example.com:80,8080/http"),
        ("*.Example.com:443", "*.example.com:443"),
        ("127.0.0.1:5432", "127.0.0.1:5432"),
        ("[::1]:80/tcp", "[::1]:80/tcp"),
        ("10.0.0.0/8:443", "10.0.0.0/8:443"),
        ("10.0.0.0/8", "10.0.0.0/8:80,443"),
        ("[fd00::]/8:22", "[fd00::]/8:22"),
        ("[::ffff:10.0.0.1]:22", "10.0.0.1:22"),
        ("10.1.2.3/32:9", "10.1.2.3:9"),
        ("https://API.example.com/v1/* post,GET", "https://api.example.com/v1/* GET,POST"),
        ("https://api.example.com:8443/v1", "https://api.example.com:8443/v1"),
        ("https://api.example.com:443/*  GET", "https://api.example.com/* GET"),
        ("https://*.example.com GET", "https://*.example.com/* GET"),
        ("http://example.com/a/*/b", "http://example.com/a/*/b"),
        ("http://example.com:8080/ HEAD", "http://example.com:8080/ HEAD"),
        ("169.254.169.254:80/metadata", "169.254.169.254:80/metadata"),
        ("[::ffff:169.254.169.254]:80/http/metadata", "169.254.169.254:80/http/metadata"),
        ("169.254.0.0/16:80/metadata", "169.254.0.0/16:80/metadata"),
        ("128.0.0.0/1:80/metadata", "128.0.0.0/1:80/metadata"),
        ("[fd00:ec2::254]/metadata", "[fd00:ec2::254]:80,443/metadata"),
        ("metadata.google.internal:80/metadata", "metadata.google.internal:80/metadata"),
        (
            "http://metadata.google.internal/a/* GET metadata",
            "http://metadata.google.internal/a/* GET metadata",
        ),
        ("http://metadata.google.internal/a metadata", "http://metadata.google.internal/a metadata"),
        ("http://metadata.google.internal metadata", "metadata.google.internal:80/http/metadata"),
        // Nothing to look for: the encryption stays closed.
        ("https://example.com", "example.com:443/tls"),
        ("https://example.com/*", "example.com:443/tls"),
        ("http://example.com:81/*", "example.com:81/http"),
    ] {
        assert_eq!(read(text).as_deref(), Ok(form), "{text}");
        assert_eq!(read(form).as_deref(), Ok(form), "{form}");
    }
}

#[test]
fn a_grant_that_is_too_wide_or_malformed_is_rejected() {
    for text in [
        "",
        "*",
        "*.com",
        "*.",
        "a.*.example.com",
        "*a.example.com",
        "**.example.com",
        "*.*.example.com",
        "example.com:",
        "example.com:0",
        "example.com:1-5",
        "example.com:443/udp",
        "ftp://example.com",
        "https://",
        "https://example.com/a/../b",
        "https://example.com/a?b",
        "https://example.com GET/POST",
        "https://user@example.com/a",
        "https://10.0.0.1/a",
        "https://example.com:443,444/a",
        "https:///a",
        "example.com GET",
        "example.com/path",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/",
        "0.0.0.0/0",
        "example.com/8",
        "user@example.com",
        "*.127.0.0.1",
        "127.1:80",
        "169.254.169.254:80",
        "169.254.169.254",
        "169.254.169.254:80/http",
        "[::ffff:169.254.169.254]:80",
        "[64:ff9b::169.254.169.254]:80",
        "[2002:a9fe:a9fe::]:80",
        "169.254.0.0/16:80",
        "169.254.169.254/32:80",
        "168.63.129.16:80",
        "100.100.100.200:80",
        "192.0.0.192:80",
        "169.254.170.2:80",
        "[fd00:ec2::254]:80",
        "[fe80::1]:80",
        "[fe80::]/10:80",
        "metadata.google.internal",
        "METADATA.google.internal.:80",
        "http://metadata.google.internal/a GET",
        "10.0.0.5:80/metadata",
        "example.com/metadata",
        "https://example.com/a GET metadata",
        "169.254.169.254:80/Metadata",
        "169.254.169.254:80/metadata/tcp",
        "169.254.169.254:80/metadata/metadata",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn a_range_covers_its_addresses_only() {
    let Pattern::Addresses(range) = Pattern::parse("10.0.0.0/8").unwrap() else { panic!() };
    for (text, inside) in
        [("10.255.0.1", true), ("11.0.0.0", false), ("::ffff:10.0.0.1", true), ("a00::", false)]
    {
        assert_eq!(range.contains(text.parse().unwrap()), inside, "{text}");
    }
}

#[test]
fn the_default_protocol_follows_the_port() {
    let grant = Grant::parse("example.com:22,80,443").unwrap();
    assert_eq!(
        [22, 80, 443].map(|port| grant.protocol_on(port)),
        [Protocol::Tcp, Protocol::Http, Protocol::Tls]
    );
    assert_eq!(Grant::parse("example.com:443/tcp").unwrap().protocol_on(443), Protocol::Tcp);
    assert_eq!(Grant::parse("10.0.0.1:443").unwrap().protocol_on(443), Protocol::Tcp);
}

#[test]
fn a_range_of_all_addresses_is_rejected_with_its_own_reason() {
    for text in ["0.0.0.0/0:80", "0.0.0.0/0", "[::]/0:80", "10.0.0.0/00"] {
        assert_eq!(Grant::parse(text), Err(GrantError::Everything), "{text}");
    }
    assert_eq!(Grant::parse("10.0.0.1/8"), Err(GrantError::Range));
    assert!(Grant::parse("10.0.0.0/8:80").is_ok());
}
