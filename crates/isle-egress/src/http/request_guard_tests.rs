use super::*;

const PLAIN: &str = "POST /plain HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab\ncd";
const CHUNKED: &str = "POST /chunked HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\r\n\r\r\n0\r\n\r\n";
const UPGRADE: &str = "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const TWICE: &str =
    "POST /twice HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";

/// What is said of the requests, whatever the pieces in which they come: their paths, or what is wrong.
fn verdicts(bytes: &[u8]) -> Vec<Result<String, HeadDefect>> {
    let said = |piece: usize| {
        let mut guard = RequestGuard::default();
        bytes.chunks(piece).for_each(|chunk| guard.read(chunk));
        std::iter::from_fn(|| guard.next_verdict()).map(|one| one.map(|seen| seen.target)).collect()
    };
    let whole: Vec<_> = said(bytes.len());
    for piece in 1..7 {
        assert_eq!(said(piece), whole, "{piece}: {}", String::from_utf8_lossy(bytes));
    }
    whole
}

fn fine(path: &str) -> Result<String, HeadDefect> {
    Ok(path.to_owned())
}

#[test]
fn a_request_with_an_ambiguous_end_is_found_at_any_position() {
    let twice = Err(HeadDefect::LengthAndCoding);
    for before in [PLAIN, CHUNKED, UPGRADE, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "\r\n\r\n"] {
        let said = verdicts(format!("{before}{TWICE}{PLAIN}").as_bytes());
        assert_eq!(said.last(), Some(&twice), "{before}");
    }
    assert_eq!(
        verdicts(format!("{PLAIN}{CHUNKED}{UPGRADE}{PLAIN}").as_bytes()),
        [fine("/plain"), fine("/chunked"), fine("/upgrade"), fine("/plain")]
    );
}

#[test]
fn a_body_is_not_parsed_as_a_head() {
    let body = format!("POST /a HTTP/1.1\r\nContent-Length: {}\r\n\r\n{TWICE}", TWICE.len());
    assert_eq!(verdicts(format!("{body}{PLAIN}").as_bytes()), [fine("/a"), fine("/plain")]);
    let chunks = format!(
        "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{:x};x=y\r\n{TWICE}\r\n0\r\nT: u\r\n\r\n",
        TWICE.len()
    );
    assert_eq!(verdicts(format!("{chunks}{PLAIN}").as_bytes()), [fine("/a"), fine("/plain")]);
}

#[test]
fn after_a_malformed_request_nothing_has_a_verdict() {
    for odd in [
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n X: folded\r\n\r\n",
    ] {
        assert_eq!(verdicts(format!("{odd}{PLAIN}").as_bytes()), [Err(HeadDefect::Field)], "{odd:?}");
    }
    let broken = "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n 0\r\n\r\n";
    assert_eq!(verdicts(format!("{broken}{PLAIN}").as_bytes()), [fine("/a")]);
    assert_eq!(verdicts(&vec![b'x'; 1 << 20]), [Err(HeadDefect::TooLarge)]);
}

#[test]
fn a_switched_connection_is_not_parsed() {
    let mut guard = RequestGuard::default();
    guard.read(UPGRADE.as_bytes());
    assert!(guard.next_verdict().is_some_and(|seen| seen.is_ok_and(|seen| seen.is("GET", Some("/upgrade")))));
    guard.switch();
    guard.read(TWICE.as_bytes());
    assert!(guard.next_verdict().is_none() && !guard.is_in_head());
}
