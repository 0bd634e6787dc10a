//! What passes and what does not, header by header.

use super::*;

fn seen() -> Seen {
    Seen { host: "8000-abc.localhost:4000".into(), port: 8000, target: "/a/b".into() }
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    headers
}

fn text(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

fn answered(lines: &[(&str, &str)]) -> HeaderMap {
    to_caller(StatusCode::OK, &headers(lines), &seen(), HostIs::Own).unwrap()
}

const ALWAYS: [&str; 3] = ["cross-origin-opener-policy", "cross-origin-resource-policy", "referrer-policy"];

fn names(headers: &HeaderMap) -> Vec<String> {
    let mut names: Vec<String> = headers.keys().map(|name| name.as_str().to_owned()).collect();
    names.retain(|name| !ALWAYS.contains(&name.as_str()));
    names.sort();
    names
}

#[test]
fn what_lets_a_caller_in_does_not_go_to_the_program() {
    let given = [
        ("authorization", "Bearer secret-token"),
        ("x-api-key", "secret-token"),
        ("x-anything", "a secret-token inside"),
        ("isle-ticket", "secret-ticket"),
        ("isle_ticket", "of another, secret"),
        ("proxy_authorization", "secret"),
        ("x_forwarded_for", "secret"),
        ("isle-namespace", "team"),
        ("isle-door", "cli"),
        ("proxy-authorization", "Basic secret"),
        ("proxy-anything", "secret"),
        ("connection", "keep-alive, X-Hop, Content-Length"),
        ("x-hop", "secret"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("trailer", "x-late"),
        ("expect", "100-continue"),
        ("content-length", "3"),
        ("host", "8000-abc.localhost:4000"),
        ("origin", "http://8000-abc.localhost:4000"),
        ("referer", "http://8000-abc.localhost:4000/page?isle_ticket=secret"),
        ("cookie", "a=b; isle_ticket=secret; ISLE_TICKET=secret;c=d"),
        ("cookie", "isle_ticket=secret"),
        ("x-forwarded-for", "secret"),
        ("x-forwarded-host", "secret.example"),
        ("x-forwarded-prefix", "/secret"),
        ("forwarded", "host=secret"),
        ("via", "secret"),
        ("x-original-url", "/secret"),
    ];
    let is_token = |value: &[u8]| value.windows(12).any(|part| part == b"secret-token");
    let passed = to_program(headers(&given), &seen(), &is_token);
    assert_eq!(
        names(&passed),
        ["content-length", "cookie", "host", "origin", "referer", "x-forwarded-host", "x-forwarded-proto"]
    );
    assert!(!format!("{passed:?}").contains("secret"), "{passed:?}");
    assert_eq!(text(&passed, "host"), ["localhost:8000"]);
    assert_eq!(text(&passed, "origin"), ["http://localhost:8000"]);
    assert_eq!(text(&passed, "referer"), ["http://localhost:8000/page"]);
    assert_eq!(text(&passed, "cookie"), ["a=b; c=d"]);
    assert_eq!(text(&passed, "x-forwarded-host"), ["8000-abc.localhost:4000"]);
    // A ticket in the wrong cookie takes the header along; in its own it is taken out.
    let wrong = [("cookie", "a=b; other=secret-token"), ("cookie", "c=d; isle_ticket=secret-token")];
    assert!(to_program(headers(&wrong), &seen(), &is_token).get("cookie").is_none());
    let right = [("cookie", "c=d; isle_ticket=secret-token")];
    assert_eq!(text(&to_program(headers(&right), &seen(), &is_token), "cookie"), ["c=d"]);
    // What is the program's own stays so.
    let own = [("authorization", "Bearer of-the-program"), ("x-api-key", "k"), ("x-own", "kept")];
    let passed = to_program(headers(&own), &seen(), &is_token);
    assert_eq!(text(&passed, "authorization"), ["Bearer of-the-program"]);
    assert_eq!((text(&passed, "x-api-key").len(), text(&passed, "x-own").len()), (1, 1));
    let basic = [("authorization", "Basic dXNlcjpzZWNyZXQtdG9rZW4=")];
    assert!(to_program(headers(&basic), &seen(), &is_token).get("authorization").is_none());
    let elsewhere = [("referer", "http://127.0.0.1:7777/secret")];
    assert!(to_program(headers(&elsewhere), &seen(), &is_token).get("referer").is_none());
}

#[test]
fn only_headers_of_the_list_come_back() {
    let passed = answered(&[
        ("content-type", "text/html"),
        ("etag", "\"x\""),
        ("x-total-count", "42"),
        ("x-request-id", "a-b"),
        ("access-control-allow-origin", "*"),
        ("access-control-allow-credentials", "true"),
        ("alt-svc", "h3=\":443\""),
        ("clear-site-data", "\"*\""),
        ("strict-transport-security", "max-age=9"),
        ("public-key-pins", "x"),
        ("report-to", "{}"),
        ("nel", "{}"),
        ("reporting-endpoints", "a=\"https://evil.example\""),
        ("content-security-policy-report-only", "report-uri https://evil.example"),
        ("proxy-authenticate", "Basic"),
        ("isle-version", "9"),
        ("isle-ticket", "x"),
        ("timing-allow-origin", "*"),
        ("x-accel-redirect", "internal"),
        ("x-sendfile", "x"),
        ("x-pingback", "https://evil.example/"),
        ("x-forwarded-host", "evil.example"),
        ("unheard-of", "x"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("trailer", "x-late"),
        ("connection", "x-request-id"),
    ]);
    assert_eq!(names(&passed), ["content-type", "etag", "x-request-id", "x-total-count"]);
    assert_eq!(text(&passed, "referrer-policy"), ["same-origin"]);
    assert_eq!(text(&answered(&[("referrer-policy", "unsafe-url")]), "referrer-policy"), ["same-origin"]);
    assert_eq!(text(&answered(&[("referrer-policy", "no-referrer")]), "referrer-policy"), ["no-referrer"]);
    let two = [("content-security-policy", "default-src 'self', report-uri https://evil.example")];
    assert_eq!(text(&answered(&two), "content-security-policy"), ["default-src 'self'"]);
    assert_eq!(text(&answered(&[("www-authenticate", "Basic realm=x")]), "www-authenticate").len(), 1);
    for system in ["Negotiate", "NTLM", "Basic realm=x, Negotiate"] {
        assert!(answered(&[("www-authenticate", system)]).get("www-authenticate").is_none(), "{system}");
    }
    let policy =
        [("content-security-policy", "default-src 'self'; report-uri https://evil.example; Report-To x")];
    assert_eq!(text(&answered(&policy), "content-security-policy"), ["default-src 'self'"]);
}

#[test]
fn no_header_of_the_list_names_a_place() {
    const EVIL: &str = "http://127.0.0.1:34193/v1/tokens";
    for name in FORWARDED.into_iter().chain(["x-a", "x-request-id"]) {
        for value in [EVIL, "HTTP:evil", "ws:x", "a \"https://evil.example\"", "//evil.example", "x=\"ws:x\""]
        {
            let passed = text(&answered(&[(name, value)]), name);
            let opaque = name == "etag" && !value.contains("://");
            assert!(passed.is_empty() || opaque, "{name}: {value} as {passed:?}");
        }
    }
    let typed = [("content-type", "text/html; profile=\"http://evil.example\"")];
    assert_eq!(text(&answered(&typed), "content-type"), ["text/html"]);
    for (name, value) in [
        ("date", "Mon, 16 Nov 2026 18:48:33 GMT"),
        ("content-type", "multipart/form-data; boundary=x"),
        ("server", "Werkzeug/2.0 Python/3.11"),
        ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzh//bK+xOo="),
        ("sec-websocket-protocol", "chat.v1"),
        ("x-runtime", "0.5"),
        ("etag", "\"sha256:aa\""),
    ] {
        assert_eq!(text(&answered(&[(name, value)]), name), [value], "{name}");
    }
    for (written, read) in [
        ("Basic realm=\"my realm\"", Some("Basic realm=\"my realm\"")),
        ("basic", Some("Basic realm=\"sandbox\"")),
        ("Basic realm=\"http://evil.example\"", Some("Basic realm=\"sandbox\"")),
        ("Bearer realm=\"http://127.0.0.1:34193/v1/tokens\",service=\"x\"", Some("Bearer realm=\"sandbox\"")),
        ("Bearer resource_metadata=\"http://evil.example\"", Some("Bearer realm=\"sandbox\"")),
        ("Bearer authorization-uri=\"http://evil.example\"", Some("Bearer realm=\"sandbox\"")),
        (
            "Digest realm=\"a\", domain=\"http://evil.example\", nonce=\"n1\", qop=\"auth\", algorithm=MD5",
            Some("Digest realm=\"a\", nonce=\"n1\", qop=\"auth\", algorithm=MD5"),
        ),
        ("Digest realm=\"a\", nonce=\"ws:x\"", None),
        ("Basic realm=\"a\", Bearer realm=\"http://evil.example\"", None),
        ("Unheard url=\"http://evil.example\"", None),
    ] {
        let passed = text(&answered(&[("www-authenticate", written)]), "www-authenticate");
        assert_eq!(passed.first().map(String::as_str), read, "{written}");
    }
}

#[test]
fn references_pass_when_they_stay_at_the_origin() {
    for name in URL_HEADERS {
        assert_eq!(text(&answered(&[(name, "../x.map")]), name), ["/x.map"], "{name}");
        assert!(answered(&[(name, "https://evil.example/x")]).get(name).is_none(), "{name}");
    }
    for (written, read) in [
        ("5; url=/next", Some("5;url=/next")),
        ("0;URL='http://localhost:8000/x'", Some("0;url=/x")),
        ("0, next", Some("0;url=/a/next")),
        ("7", Some("7")),
        ("0;url=http://127.0.0.1:7777/v1/tokens", None),
        ("0;http://127.0.0.1:7777/v1/tokens", None),
        ("0;url=\"//evil.example\"", None),
        ("0;url=/a;b", None),
        ("x;url=/a", None),
        ("", None),
    ] {
        let passed = text(&answered(&[("refresh", written)]), "refresh");
        assert_eq!(passed.first().map(String::as_str), read, "{written}");
    }
    for (written, read) in [
        ("</a.css>; rel=preload; as=style", Some("</a.css>; rel=\"preload\"; as=\"style\"")),
        ("<x>; rel=\"next, prev\", <https://evil.example>; rel=preconnect", Some("</a/x>")),
        ("<//evil.example/>; rel=dns-prefetch, <?p=2>; rel=next", Some("</a/b?p=2>; rel=\"next\"")),
        ("<https://evil.example/>; rel=preload", None),
        ("</a>; rel=next; anchor=\"https://evil.example\"", None),
        ("</a; rel=preload", None),
        ("</a>; rel=\"open", None),
        ("nonsense", None),
    ] {
        let passed = text(&answered(&[("link", written)]), "link");
        assert_eq!(passed.first().map(String::as_str), read, "{written}");
    }
}

#[test]
fn a_redirect_stays_at_the_origin_or_is_none() {
    let redirected = |status: u16, lines: &[(&str, &str)]| {
        let status = StatusCode::from_u16(status).unwrap();
        to_caller(status, &headers(lines), &seen(), HostIs::Own).map(|passed| text(&passed, "location"))
    };
    for status in [300, 301, 302, 303, 307, 308] {
        assert_eq!(
            redirected(status, &[("location", "../../grants?hosts=x")]),
            Ok(vec!["/grants?hosts=x".into()])
        );
        for leaving in
            ["http://127.0.0.1:7777/v1/tokens", "//evil.example", "/\\evil.example", "javascript:x"]
        {
            let location = leaving.to_owned();
            assert_eq!(
                redirected(status, &[("location", leaving)]),
                Err(LeavesOrigin { location }),
                "{leaving}"
            );
        }
        assert!(redirected(status, &[("location", "/a"), ("location", "/b")]).is_err());
    }
    assert_eq!(redirected(201, &[("location", "https://evil.example/")]), Ok(vec![]));
    assert_eq!(redirected(201, &[("location", "/made")]), Ok(vec!["/made".into()]));
    assert_eq!(redirected(304, &[]), Ok(vec![]));
}

#[test]
fn cookies_are_of_one_host_and_never_ours() {
    let passed = answered(&[
        ("set-cookie", "a=1; Path=/x; Domain=localhost; HttpOnly"),
        ("set-cookie", "b=2"),
        ("set-cookie", "isle_ticket=x; Path=/"),
        ("set-cookie", "Isle_Ticket =x"),
        ("set-cookie", "=isle_ticket=x"),
        ("set-cookie", "isle_ticket"),
        ("set-cookie", "c=3; DOMAIN = .localhost ;;Secure"),
    ]);
    assert_eq!(text(&passed, "set-cookie"), ["a=1; Path=/x; HttpOnly", "b=2", "c=3; Secure"]);
    let shared =
        to_caller(StatusCode::OK, &headers(&[("set-cookie", "a=1")]), &seen(), HostIs::Shared).unwrap();
    assert!(shared.get("set-cookie").is_none(), "a host of all ports keeps no cookies");
    let given = headers(&[("cookie", "a=b; isle_ticket=one;x"), ("cookie", "isle_ticket=two=2")]);
    assert_eq!(ticket_cookies(&given), [&b"one"[..], b"two=2"]);
}

#[test]
fn an_upgrade_needs_both_headers_and_no_body() {
    let both = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
    let asks = |method: Method, lines: &[(&str, &str)]| requested_upgrade(&method, &headers(lines));
    assert_eq!(asks(Method::GET, &both).unwrap(), "websocket");
    assert_eq!(asks(Method::POST, &both), None);
    assert_eq!(asks(Method::GET, &both[1..]), None);
    assert_eq!(asks(Method::GET, &both[..1]), None);
    for body in [("content-length", "5"), ("transfer-encoding", "chunked")] {
        assert_eq!(asks(Method::GET, &[both[0], both[1], body]), None);
    }
}
