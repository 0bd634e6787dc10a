//! Headers on their way to a program in a sandbox and back. The program never sees what lets a caller in
//! here; and what it answers has no power over this server's origin: no cookies outside its own path, no
//! rules for other pages, and pages that it serves are nobody's origin to a browser.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, LOCATION, ORIGIN, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

pub(super) const UPGRADE_WORD: HeaderValue = HeaderValue::from_static("upgrade");

/// Of one connection only, never passed on.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    UPGRADE,
    TRANSFER_ENCODING,
    TE,
    TRAILER,
    EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authorization"),
];

/// What a program has no say in: rules for all pages of an origin.
const OF_THE_ORIGIN: [&str; 6] = [
    "alt-svc",
    "clear-site-data",
    "public-key-pins",
    "service-worker-allowed",
    "strict-transport-security",
    "proxy-authenticate",
];

/// A page of a sandbox, opened in a browser, must not act with the rights of this server's own pages.
const NOBODYS_ORIGIN: HeaderValue = HeaderValue::from_static(
    "sandbox allow-downloads allow-forms allow-modals allow-popups allow-presentation allow-scripts",
);

/// The protocol a caller wants to change to, if it does.
pub(super) fn asks_to_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = words(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| asks).cloned()
}

fn words<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Takes off what is of one connection, and what that connection itself names so.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        words(headers, &CONNECTION).filter_map(|word| word.to_ascii_lowercase().parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        // A length that one side did not hear of is how requests are smuggled.
        if *name != CONTENT_LENGTH && *name != HOST {
            headers.remove(name);
        }
    }
}

/// The headers of a request as the program in the sandbox gets them.
pub(super) fn to_program(mut headers: HeaderMap, port: u16, prefix: &str) -> HeaderMap {
    strip_hop_by_hop(&mut headers);
    // Our token, in either of its places. Other schemes mean nothing here and are the program's.
    let ours = |value: &HeaderValue| {
        value.as_bytes().get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"bearer"))
    };
    if headers.get_all(AUTHORIZATION).iter().any(ours) {
        headers.remove(AUTHORIZATION);
    }
    for name in ["x-api-key", "isle-namespace", "isle-door"] {
        headers.remove(name);
    }
    if let Some(host) = headers.remove(HOST) {
        headers.entry("x-forwarded-host").or_insert(host);
    }
    headers.entry("x-forwarded-proto").or_insert(HeaderValue::from_static("http"));
    if let Ok(prefix) = HeaderValue::from_str(prefix) {
        headers.insert("x-forwarded-prefix", prefix);
    }
    // Servers for development answer to this name only; an origin that came this far is a good one.
    if let Ok(host) = HeaderValue::from_str(&format!("localhost:{port}")) {
        headers.insert(HOST, host);
    }
    if headers.contains_key(ORIGIN)
        && let Ok(origin) = HeaderValue::from_str(&format!("http://localhost:{port}"))
    {
        headers.insert(ORIGIN, origin);
    }
    headers
}

/// The headers of an answer as the caller gets them.
pub(super) fn to_caller(mut headers: HeaderMap, prefix: &str, port: u16) -> HeaderMap {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip_hop_by_hop(&mut headers);
    let foreign: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            OF_THE_ORIGIN.contains(&name) || name.starts_with("access-control-") || name.starts_with("isle-")
        })
        .cloned()
        .collect();
    for name in foreign {
        headers.remove(name);
    }
    let cookies: Vec<HeaderValue> =
        headers.get_all(SET_COOKIE).iter().filter_map(|cookie| own_cookie(cookie, prefix)).collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
    if let Some(location) = headers.get(LOCATION).and_then(|location| below(location, prefix, port)) {
        headers.insert(LOCATION, location);
    }
    headers.append(CONTENT_SECURITY_POLICY, NOBODYS_ORIGIN);
    headers
}

/// A cookie that goes to this port of this sandbox and nowhere else.
fn own_cookie(cookie: &HeaderValue, prefix: &str) -> Option<HeaderValue> {
    let text = cookie.to_str().ok()?;
    let mut parts = text.split(';');
    let mut own = parts.next()?.trim().to_owned();
    for part in parts {
        let name = part.split('=').next().unwrap_or_default().trim();
        if !name.eq_ignore_ascii_case("path") && !name.eq_ignore_ascii_case("domain") {
            own.push(';');
            own.push_str(part);
        }
    }
    HeaderValue::from_str(&format!("{own}; Path={prefix}/")).ok()
}

/// Where the program sends its caller, if that is another place of the program's.
fn below(location: &HeaderValue, prefix: &str, port: u16) -> Option<HeaderValue> {
    let text = location.to_str().ok()?;
    let own = ["localhost", "127.0.0.1", "[::1]"].iter().find_map(|host| {
        let rest = text.strip_prefix(&format!("http://{host}:{port}"))?;
        (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(rest)
    });
    let path = match own {
        Some(rest) if rest.starts_with('/') => rest.to_owned(),
        Some(rest) => format!("/{rest}"),
        None if text.starts_with('/') && !text.starts_with("//") => text.to_owned(),
        None => return None,
    };
    HeaderValue::from_str(&format!("{prefix}{path}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/v1/sandboxes/box/ports/8000";

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

    #[test]
    fn what_lets_a_caller_in_does_not_go_to_the_program() {
        let given = [
            ("authorization", "Bearer secret"),
            ("x-api-key", "secret"),
            ("isle-namespace", "team"),
            ("isle-door", "cli"),
            ("proxy-authorization", "Basic secret"),
            ("connection", "keep-alive, X-Hop, Content-Length"),
            ("x-hop", "secret"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("expect", "100-continue"),
            ("content-length", "3"),
            ("host", "isle.example:8099"),
            ("origin", "http://isle.example:8099"),
            ("cookie", "a=b"),
            ("x-forwarded-prefix", "/elsewhere"),
        ];
        let passed = to_program(headers(&given), 8000, PREFIX);
        let mut names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = [
            "content-length",
            "cookie",
            "host",
            "origin",
            "x-forwarded-host",
            "x-forwarded-prefix",
            "x-forwarded-proto",
        ];
        assert_eq!(names, expected);
        assert!(!format!("{passed:?}").contains("secret"));
        assert_eq!(text(&passed, "host"), ["localhost:8000"]);
        assert_eq!(text(&passed, "x-forwarded-prefix"), [PREFIX]);
        assert_eq!(text(&passed, "x-forwarded-host"), ["isle.example:8099"]);
        let basic =
            to_program(headers(&[("authorization", "Basic eA=="), ("x-api-key", "secret")]), 1, PREFIX);
        assert_eq!(text(&basic, "authorization"), ["Basic eA=="], "that one is the program's");
    }

    #[test]
    fn what_a_program_answers_has_no_power_over_this_server() {
        let given = [
            ("content-type", "text/html"),
            ("access-control-allow-origin", "*"),
            ("isle-version", "9"),
            ("clear-site-data", "\"*\""),
            ("strict-transport-security", "max-age=9"),
            ("service-worker-allowed", "/"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("set-cookie", "a=1; Path=/; Domain=localhost; HttpOnly"),
            ("set-cookie", "b=2"),
            ("content-security-policy", "default-src 'self'"),
        ];
        let passed = to_caller(headers(&given), PREFIX, 8000);
        let mut names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-security-policy", "content-type", "set-cookie"]);
        let own = format!("; Path={PREFIX}/");
        assert_eq!(text(&passed, "set-cookie"), [format!("a=1; HttpOnly{own}"), format!("b=2{own}")]);
        assert_eq!(text(&passed, "content-security-policy").len(), 2);
        assert!(text(&passed, "content-security-policy")[1].starts_with("sandbox "));
    }

    #[test]
    fn a_program_sends_its_caller_to_places_of_its_own() {
        for (written, read) in [
            ("/login?x", format!("{PREFIX}/login?x")),
            ("http://localhost:8000/a", format!("{PREFIX}/a")),
            ("http://127.0.0.1:8000", format!("{PREFIX}/")),
            ("http://localhost:80001/a", "http://localhost:80001/a".to_owned()),
            ("//other.example/", "//other.example/".to_owned()),
            ("https://other.example/", "https://other.example/".to_owned()),
            ("relative", "relative".to_owned()),
        ] {
            let passed = to_caller(headers(&[("location", written)]), PREFIX, 8000);
            assert_eq!(text(&passed, "location"), [read], "{written}");
        }
    }

    #[test]
    fn an_upgrade_needs_both_headers() {
        let both = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(asks_to_upgrade(&both).unwrap(), "websocket");
        assert_eq!(asks_to_upgrade(&headers(&[("upgrade", "websocket")])), None);
        assert_eq!(asks_to_upgrade(&headers(&[("connection", "upgrade")])), None);
    }
}
