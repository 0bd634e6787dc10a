use super::*;

fn flaw(fields: &str) -> Option<HeadDefect> {
    read_head(format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes()).err()
}

#[test]
fn an_ambiguous_head_is_rejected() {
    for (fields, expected) in [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked", HeadDefect::LengthAndCoding),
        ("Transfer-Encoding: chunked\r\ncontent-LENGTH: 0", HeadDefect::LengthAndCoding),
        ("Transfer-Encoding: identity, chunked", HeadDefect::Coding),
        ("Transfer-Encoding: chunked, identity", HeadDefect::Coding),
        ("Transfer-Encoding: gzip, chunked", HeadDefect::Coding),
        ("Transfer-Encoding: chunked,chunked", HeadDefect::Coding),
        ("Transfer-Encoding: chunked,", HeadDefect::Coding),
        ("Transfer-Encoding: ,chunked", HeadDefect::Coding),
        ("Transfer-Encoding: \"chunked\"", HeadDefect::Coding),
        ("Transfer-Encoding: chunked;q=1", HeadDefect::Coding),
        ("Transfer-Encoding: xchunked", HeadDefect::Coding),
        ("Transfer-Encoding:", HeadDefect::Coding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", HeadDefect::Coding),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", HeadDefect::Coding),
        ("Transfer-Encoding:\u{b}chunked", HeadDefect::Field),
        ("Transfer-Encoding: chunked\0", HeadDefect::Field),
        ("Transfer-Encoding: \u{a0}chunked", HeadDefect::Coding),
        ("Transfer-Encoding : chunked", HeadDefect::Field),
        (" Transfer-Encoding: chunked", HeadDefect::Field),
        ("X: y\r\n Transfer-Encoding: chunked", HeadDefect::Field),
        ("X: y\r\n\tz", HeadDefect::Field),
        ("X: y\nTransfer-Encoding: chunked", HeadDefect::Field),
        ("X: y\rTransfer-Encoding: chunked", HeadDefect::Field),
        ("X", HeadDefect::Field),
        (": x", HeadDefect::Field),
        ("Content-Length: 1\r\nContent-Length: 1", HeadDefect::Length),
        ("Content-Length: 1\r\nContent-Length: 2", HeadDefect::Length),
        ("Content-Length: 1, 1", HeadDefect::Length),
        ("Content-Length: +1", HeadDefect::Length),
        ("Content-Length: -1", HeadDefect::Length),
        ("Content-Length: 0x1", HeadDefect::Length),
        ("Content-Length: 1.0", HeadDefect::Length),
        ("Content-Length: 1 1", HeadDefect::Length),
        ("Content-Length: ", HeadDefect::Length),
        ("Content-Length: 9999999999999999999", HeadDefect::Length),
        ("Host: a\r\nhost: a", HeadDefect::Hosts),
    ] {
        assert_eq!(flaw(fields), Some(expected), "{fields:?}");
    }
    for fields in ["Content-Length: 0", "Transfer-Encoding: Chunked", "Host: a\r\nX: \u{e9}\ty", "X:"] {
        assert_eq!(flaw(fields), None, "{fields:?}");
    }
    assert_eq!(flaw(&"X: y\r\n".repeat(MOST_FIELDS + 1)).map(|_| ()), Some(()));
}

#[test]
fn a_request_line_is_three_words_with_single_spaces() {
    for (line, expected) in [
        ("GET  / HTTP/1.1", HeadDefect::NotHttp),
        ("GET / HTTP/1.1 ", HeadDefect::NotHttp),
        ("GET / HTTP/1.2", HeadDefect::NotHttp),
        ("GET / http/1.1", HeadDefect::NotHttp),
        ("GET /", HeadDefect::NotHttp),
        ("PRI * HTTP/2.0", HeadDefect::NotHttp),
        ("G(T / HTTP/1.1", HeadDefect::NotHttp),
        ("GET /a#b HTTP/1.1", HeadDefect::RequestLine),
        ("GET /a\tb HTTP/1.1", HeadDefect::RequestLine),
        ("GET /\u{7f} HTTP/1.1", HeadDefect::RequestLine),
        ("GET /\u{e9} HTTP/1.1", HeadDefect::RequestLine),
    ] {
        let head = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(read_head(head.as_bytes()).err(), Some(expected), "{line:?}");
    }
    let head = read_head(b"A-B http://a/b?c HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!((head.method, head.target, head.version), ("A-B", "http://a/b?c", "HTTP/1.0"));
}
