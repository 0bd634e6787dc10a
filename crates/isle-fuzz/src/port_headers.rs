//! Headers of programs in sandboxes on their way to a caller, and of callers on their way in: whatever is
//! written there, no ticket goes in, and nothing that comes out leads away from the port's own origin.

use http::header::{HeaderMap, HeaderName, HeaderValue, LOCATION, SET_COOKIE};
use http::{StatusCode, Uri};
use isle_server::ports::headers::{HostIs, Seen, contains_url, to_caller, to_program};

const HOST: &str = "8000-abc.localhost:4000";
const TICKET: &str = "the-ticket-of-the-caller";

/// The first byte chooses the status, the rest are lines of headers.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let status =
        StatusCode::from_u16([200, 201, 301, 302, 303, 307, 308, 101][usize::from(first & 7)]).unwrap();
    let headers = read(rest);
    let seen = Seen { host: HOST.into(), port: 8000, target: "/a/b?q".into() };
    if let Ok(passed) = to_caller(status, &headers, &seen, HostIs::Own) {
        check_answer(&passed);
    }
    if let Ok(passed) = to_caller(status, &headers, &seen, HostIs::Shared) {
        assert!(passed.get(SET_COOKIE).is_none());
    }
    let mut asked = headers;
    asked.insert("isle-ticket", HeaderValue::from_static(TICKET));
    let cookies = format!("x=y; isle_ticket={TICKET}");
    asked.append("cookie", HeaderValue::from_str(&cookies).unwrap());
    let passed = to_program(asked, &seen, &|text| holds(text, TICKET));
    for (name, value) in &passed {
        assert!(!name.as_str().starts_with("isle-") && !name.as_str().starts_with("proxy-"), "{name}");
        assert!(!holds(value.as_bytes(), TICKET), "{name}: {value:?}");
    }
    assert_eq!(passed.get_all("host").iter().collect::<Vec<_>>(), ["localhost:8000"]);
    assert_eq!(passed.get_all("x-forwarded-host").iter().collect::<Vec<_>>(), [HOST]);
}

fn read(text: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in text.split(|&byte| byte == b'\n').take(50) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let name = HeaderName::from_bytes(line[..colon].trim_ascii());
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn check_answer(passed: &HeaderMap) {
    for (name, value) in passed {
        let text = value.as_bytes();
        match name.as_str() {
            "content-location" | "sourcemap" | "x-sourcemap" | "service-worker-allowed" => stays(text),
            "refresh" => {
                if let Some(at) = text.iter().position(|&byte| byte == b'=') {
                    stays(&text[at + 1..]);
                }
            }
            "link" => {
                for link in text.split(|&byte| byte == b'<').skip(1) {
                    stays(link.split(|&byte| byte == b'>').next().unwrap());
                }
            }
            "set-cookie" => {
                let text = String::from_utf8_lossy(text).to_ascii_lowercase();
                let name = text.split('=').next().unwrap().trim();
                assert!(!name.is_empty() && name != "isle_ticket", "{text}");
                assert!(text.split(';').skip(1).all(|part| !part.trim().starts_with("domain=")), "{text}");
            }
            name => {
                let opaque = ["content-security-policy", "etag", "location", "sec-websocket-accept"];
                assert!(opaque.contains(&name) || !contains_url(text), "{name}: {value:?}");
                for never in ["access-control-", "proxy-", "isle-", "x-accel-", "x-forwarded-"] {
                    assert!(!name.starts_with(never), "{name}");
                }
                for never in ["alt-svc", "clear-site-data", "strict-transport-security", "report-to", "nel"] {
                    assert_ne!(name, never);
                }
            }
        }
    }
    let locations: Vec<&HeaderValue> = passed.get_all(LOCATION).iter().collect();
    assert!(locations.len() <= 1);
    for location in locations {
        stays(location.as_bytes());
    }
}

/// A path that every reader takes for one.
fn stays(reference: &[u8]) {
    let text = std::str::from_utf8(reference).unwrap();
    assert!(text.starts_with('/') && !text.starts_with("//") && !text.starts_with("/\\"), "{text}");
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
    let base = url::Url::parse(&format!("http://{HOST}/a/b")).unwrap();
    let url = base.join(text).unwrap();
    assert_eq!((url.host_str(), url.port()), (base.host_str(), base.port()), "{text}");
    if let Ok(uri) = text.parse::<Uri>() {
        assert!(uri.authority().is_none(), "{text}");
    }
}

fn holds(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|window| window == part.as_bytes())
}
