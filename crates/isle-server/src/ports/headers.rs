//! Filters headers to and from a program in a sandbox. Requests are forwarded without Isle credentials. Only
//! allowed response headers are forwarded; URLs in them are resolved and must stay at the program's own origin.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
    ORIGIN, REFERER, REFERRER_POLICY, SET_COOKIE, TRANSFER_ENCODING, UPGRADE, WWW_AUTHENTICATE,
};
use http::{Method, StatusCode};

pub use super::urls::{Seen, contains_url};

pub(super) const UPGRADE_WORD: HeaderValue = HeaderValue::from_static("upgrade");
/// Header with the ticket, sent by programs.
pub const TICKET_HEADER: &str = "isle-ticket";
/// Cookie and query parameter with the ticket, sent by browsers.
pub const TICKET_COOKIE: &str = "isle_ticket";

/// Hop-by-hop headers, never forwarded.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "upgrade",
    "transfer-encoding",
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "proxy-connection",
    "http2-settings",
];

/// Headers set by proxies; a client must not set them.
const PROXY_HEADERS: [&str; 6] =
    ["forwarded", "via", "x-real-ip", "x-original-url", "x-original-host", "x-rewrite-url"];

/// Response headers that are forwarded, besides those checked individually and `x-` headers without URLs.
const FORWARDED: [&str; 36] = [
    "accept-patch",
    "accept-post",
    "accept-ranges",
    "age",
    "allow",
    "authentication-info",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "deprecation",
    "etag",
    "expires",
    "last-modified",
    "permissions-policy",
    "pragma",
    "ratelimit",
    "ratelimit-limit",
    "ratelimit-policy",
    "ratelimit-remaining",
    "ratelimit-reset",
    "retry-after",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "server",
    "server-timing",
    "sunset",
    "vary",
    "x-content-type-options",
    "x-frame-options",
];

/// Headers whose value is a URL.
const URL_HEADERS: [&str; 4] = ["content-location", "sourcemap", "x-sourcemap", "service-worker-allowed"];

/// Prefixes of `x-` headers that control a proxy.
const PROXY_CONTROL: [&str; 9] = [
    "x-accel-",
    "x-forwarded-",
    "x-http-method",
    "x-isle-",
    "x-lighttpd-",
    "x-litespeed-",
    "x-original-",
    "x-rewrite-",
    "x-sendfile",
];

/// A redirect that leaves the origin of its port.
#[derive(Debug, PartialEq, Eq)]
pub struct LeavesOrigin {
    /// The location sent by the program.
    pub location: String,
}

/// The protocol of a valid upgrade request.
pub(super) fn requested_upgrade(method: &Method, headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = words(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"));
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    headers.get(UPGRADE).filter(|_| asks && !has_body && *method == Method::GET).cloned()
}

fn words<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Removes hop-by-hop headers, including those listed in `Connection`.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        words(headers, &CONNECTION).filter_map(|word| word.to_ascii_lowercase().parse().ok()).collect();
    let fixed = HOP_BY_HOP.iter().map(|name| HeaderName::from_static(name));
    for name in named.into_iter().chain(fixed) {
        // Removing the length would allow request smuggling.
        if name != CONTENT_LENGTH && name != HOST {
            headers.remove(name);
        }
    }
}

/// The headers of a request as forwarded to the program. `is_token` recognizes API credentials.
#[must_use]
pub fn to_program(mut headers: HeaderMap, seen: &Seen, is_token: &dyn Fn(&[u8]) -> bool) -> HeaderMap {
    strip_hop_by_hop(&mut headers);
    let kept = |name: &HeaderName, value: &HeaderValue| {
        // CGI and WSGI programs treat both characters as the same.
        let text = name.as_str().replace('_', "-");
        let of_proxies = PROXY_HEADERS.contains(&text.as_str()) || text.starts_with("x-forwarded-");
        let ours = text.starts_with("isle-") || text.starts_with("proxy-");
        let hidden = *name == AUTHORIZATION && hides_token(value, is_token);
        !(of_proxies || ours || hidden || is_token(value.as_bytes()))
    };
    let cookies: Vec<HeaderValue> = headers.get_all(COOKIE).iter().filter_map(without_ticket).collect();
    headers.remove(COOKIE);
    for cookie in cookies {
        headers.append(COOKIE, cookie);
    }
    let gone: Vec<HeaderName> =
        headers.iter().filter(|(name, value)| !kept(name, value)).map(|(name, _)| name.clone()).collect();
    for name in gone {
        headers.remove(name);
    }
    let text = |text: String| HeaderValue::from_str(&text).ok();
    let own = format!("http://localhost:{}", seen.port);
    // Development servers accept this name only; the origin was checked to be the port's own.
    let origin = headers.contains_key(ORIGIN).then(|| text(own.clone())).flatten();
    // A referer is forwarded only if it is a page of the program.
    let referer = headers
        .get(REFERER)
        .and_then(|value| value.to_str().ok())
        .and_then(|from| seen.own_path(from))
        .and_then(|path| text(format!("{own}{}", path.split(['?', '#']).next().unwrap_or_default())));
    for (name, value) in [
        (HOST, text(format!("localhost:{}", seen.port))),
        (ORIGIN, origin),
        (REFERER, referer),
        (HeaderName::from_static("x-forwarded-host"), text(seen.host.clone())),
        (HeaderName::from_static("x-forwarded-proto"), text("http".to_owned())),
    ] {
        headers.remove(&name);
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
    headers
}

/// Whether basic authentication contains a token.
fn hides_token(value: &HeaderValue, is_token: &dyn Fn(&[u8]) -> bool) -> bool {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let Some((scheme, rest)) = value.as_bytes().split_at_checked(6) else { return false };
    scheme.eq_ignore_ascii_case(b"basic ")
        && STANDARD.decode(rest.trim_ascii()).is_ok_and(|plain| is_token(&plain))
}

/// A `Cookie` header without the ticket; `None` when nothing is left.
fn without_ticket(cookie: &HeaderValue) -> Option<HeaderValue> {
    let parts: Vec<&[u8]> = cookie
        .as_bytes()
        .split(|&byte| byte == b';')
        .map(<[u8]>::trim_ascii)
        .filter(|part| !part.is_empty() && !is_ticket_pair(part))
        .collect();
    if parts.is_empty() { None } else { HeaderValue::from_bytes(&parts.join(&b"; "[..])).ok() }
}

fn is_ticket_pair(pair: &[u8]) -> bool {
    let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default().trim_ascii();
    name.eq_ignore_ascii_case(TICKET_COOKIE.as_bytes())
}

/// The ticket cookies of a request.
pub(super) fn ticket_cookies(headers: &HeaderMap) -> Vec<&[u8]> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b';'));
    pairs
        .map(<[u8]>::trim_ascii)
        .filter(|pair| is_ticket_pair(pair))
        .map(|pair| {
            pair.split_at(pair.iter().position(|&byte| byte == b'=').map_or(pair.len(), |at| at + 1)).1
        })
        .collect()
}

/// Whether the host belongs to one port only; cookies are set on no other host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostIs {
    /// The host of one port.
    Own,
    /// The host of the listener.
    Shared,
}

/// The headers of a response as forwarded to the client.
pub fn to_caller(
    status: StatusCode,
    headers: &HeaderMap,
    seen: &Seen,
    host: HostIs,
) -> Result<HeaderMap, LeavesOrigin> {
    let mut passed = HeaderMap::new();
    for (name, value) in headers {
        let text = name.as_str();
        if FORWARDED.contains(&text) {
            if let Some(value) = without_urls(text, value) {
                passed.append(name.clone(), value);
            }
        } else if text.starts_with("x-") && is_plain_extension(text, value) {
            passed.append(name.clone(), value.clone());
        } else if URL_HEADERS.contains(&text) {
            add(&mut passed, name, utf8(value).and_then(|value| seen.own_path(value)));
        } else if text == "refresh" {
            add(&mut passed, name, utf8(value).and_then(|value| refresh(value, seen)));
        } else if text == "link" {
            add(&mut passed, name, utf8(value).and_then(|value| links(value, seen)));
        } else if *name == WWW_AUTHENTICATE {
            add(&mut passed, name, utf8(value).and_then(challenge));
        } else if text == "content-security-policy" {
            add(&mut passed, name, utf8(value).map(without_reports));
        } else if *name == SET_COOKIE && host == HostIs::Own {
            add(&mut passed, name, utf8(value).and_then(own_cookie));
        }
    }
    // A length in addition to chunks is invalid.
    if headers.contains_key(TRANSFER_ENCODING) {
        passed.remove(CONTENT_LENGTH);
    }
    if let Some(location) = location(status, headers, seen)? {
        passed.insert(LOCATION, location);
    }
    // Other origins neither learn this one nor embed its content.
    let policy = match headers.get(REFERRER_POLICY).map(HeaderValue::as_bytes) {
        Some(b"no-referrer") => HeaderValue::from_static("no-referrer"),
        _ => HeaderValue::from_static("same-origin"),
    };
    passed.insert(REFERRER_POLICY, policy);
    for name in ["cross-origin-resource-policy", "cross-origin-opener-policy"] {
        passed.insert(HeaderName::from_static(name), HeaderValue::from_static("same-origin"));
    }
    Ok(passed)
}

/// The `Location` of a response. A redirect to another origin is an error; for other statuses the header is
/// dropped.
fn location(
    status: StatusCode,
    headers: &HeaderMap,
    seen: &Seen,
) -> Result<Option<HeaderValue>, LeavesOrigin> {
    let given: Vec<&HeaderValue> = headers.get_all(LOCATION).iter().collect();
    let own = match given.as_slice() {
        [] => return Ok(None),
        [one] => {
            utf8(one).and_then(|one| seen.own_path(one)).and_then(|path| HeaderValue::from_str(&path).ok())
        }
        _ => None,
    };
    if own.is_none() && status.is_redirection() {
        let location = given.first().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        return Err(LeavesOrigin { location: location.unwrap_or_default() });
    }
    Ok(own)
}

fn add(passed: &mut HeaderMap, name: &HeaderName, value: Option<String>) {
    if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
        passed.append(name.clone(), value);
    }
}

fn utf8(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

/// Whether an `x-` header neither controls a proxy nor contains a URL.
fn is_plain_extension(name: &str, value: &HeaderValue) -> bool {
    !PROXY_CONTROL.iter().any(|prefix| name.starts_with(prefix))
        && !URL_HEADERS.contains(&name)
        && !value.as_bytes().iter().any(|byte| matches!(byte, b'/' | b'\\'))
        && !contains_url(value.as_bytes())
}

/// The value of a forwarded header if it contains no URL; parameters with URLs are removed.
fn without_urls(name: &str, value: &HeaderValue) -> Option<HeaderValue> {
    let bytes = value.as_bytes();
    let opaque = match name {
        // A hash in base64.
        "sec-websocket-accept" => {
            bytes.len() == 28
                && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte))
        }
        // Opaque to clients.
        "etag" => !bytes.windows(3).any(|part| part == b"://"),
        _ => false,
    };
    if opaque || !contains_url(bytes) {
        return Some(value.clone());
    }
    let has_parameters = matches!(name, "content-type" | "content-disposition");
    let first = bytes.split(|&byte| byte == b';').next().filter(|_| has_parameters)?;
    HeaderValue::from_bytes(first.trim_ascii()).ok().filter(|_| !contains_url(first))
}

/// `5; url=/next` with the URL resolved.
fn refresh(value: &str, seen: &Seen) -> Option<String> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (seconds, rest) = value.split_at(digits);
    let seconds: u32 = seconds.parse().ok()?;
    let rest = rest.trim_start_matches(|c: char| {
        c.is_ascii_whitespace() || matches!(c, ';' | ',' | '.') || c.is_ascii_digit()
    });
    if rest.is_empty() {
        return Some(seconds.to_string());
    }
    let place = match rest.get(..3) {
        Some(word) if word.eq_ignore_ascii_case("url") => {
            rest[3..].trim_start().strip_prefix('=')?.trim_start()
        }
        _ => rest,
    };
    let place = place.trim_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '"' | '\''));
    let path = seen.own_path(place)?;
    // Clients differ about what terminates the URL.
    (!path.contains(['"', '\'', ';', ','])).then(|| format!("{seconds};url={path}"))
}

/// The links that stay at the origin.
fn links(value: &str, seen: &Seen) -> Option<String> {
    let mut kept = Vec::new();
    let mut rest = value;
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        if rest.is_empty() {
            break;
        }
        let (target, after) = rest.strip_prefix('<')?.split_once('>')?;
        let end = end_of_link(after)?;
        let parameters = after[..end].trim().trim_start_matches(';');
        rest = &after[end..];
        let path = seen.own_path(target);
        if let (Some(path), Some(parameters)) = (path, own_parameters(parameters)) {
            kept.push(format!("<{}>{parameters}", path.replace('>', "%3E").replace('<', "%3C")));
        }
    }
    (!kept.is_empty()).then(|| kept.join(", "))
}

/// End of a link's parameters: the first unquoted comma.
fn end_of_link(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => return Some(at),
            _ => {}
        }
    }
    (!quoted).then_some(text.len())
}

/// Parameters of a link without URLs. A link with an anchor is dropped.
fn own_parameters(text: &str) -> Option<String> {
    const KNOWN: [&str; 7] = ["rel", "as", "type", "media", "crossorigin", "hreflang", "fetchpriority"];
    let mut kept = String::new();
    for parameter in text.split(';').map(str::trim).filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let name = name.trim().to_ascii_lowercase();
        if name == "anchor" || name == "anchor*" {
            return None;
        }
        let value = value.trim().trim_matches('"');
        let plain = |c: char| {
            c.is_ascii_alphanumeric()
                || matches!(c, ' ' | '-' | '_' | '/' | '+' | '.' | '(' | ')' | ':' | '*')
        };
        if KNOWN.contains(&name.as_str()) && value.chars().all(plain) && !value.contains("//") {
            kept.push_str(&format!("; {name}=\"{value}\""));
        }
    }
    Some(kept)
}

/// Policies without their reporting endpoints.
fn without_reports(policies: &str) -> String {
    let kept = |directive: &&str| {
        let name = directive.split_ascii_whitespace().next().unwrap_or_default();
        !name.is_empty()
            && !["report-uri", "report-to"].iter().any(|report| name.eq_ignore_ascii_case(report))
    };
    let without = |policy: &str| policy.split(';').map(str::trim).filter(kept).collect::<Vec<_>>().join("; ");
    let policies = policies.split(',').map(without).filter(|policy| !policy.is_empty());
    policies.collect::<Vec<_>>().join(", ")
}

/// A Basic, Bearer or Digest challenge, rebuilt without URLs. Challenges that systems answer automatically are
/// dropped, and so are several at once.
fn challenge(value: &str) -> Option<String> {
    let value = value.trim();
    let (scheme, mut rest) = value.split_once(' ').unwrap_or((value, ""));
    let mut parameters: Vec<(String, &str)> = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        if rest.is_empty() {
            break;
        }
        let end = end_of_link(rest)?;
        let (name, text) = rest[..end].split_once('=')?;
        let text = text.trim();
        let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        let name = name.trim().to_ascii_lowercase();
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        {
            return None;
        }
        parameters.push((name, text));
        rest = &rest[end..];
    }
    let plain = |text: &str| {
        text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && !matches!(byte, b'"' | b'\\'))
            && !contains_url(text.as_bytes())
    };
    let of = |wanted: &str| {
        parameters.iter().find(|(name, _)| name == wanted).map(|(_, text)| *text).filter(|text| plain(text))
    };
    let realm = of("realm").unwrap_or("sandbox");
    match scheme.to_ascii_lowercase().as_str() {
        "basic" => Some(format!("Basic realm=\"{realm}\"")),
        "bearer" => Some(format!("Bearer realm=\"{realm}\"")),
        "digest" => {
            let word = |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            let mut written = format!("Digest realm=\"{realm}\", nonce=\"{}\"", of("nonce")?);
            for (name, text) in [("opaque", of("opaque")), ("qop", of("qop"))] {
                if let Some(text) = text {
                    written.push_str(&format!(", {name}=\"{text}\""));
                }
            }
            for (name, text) in [("algorithm", of("algorithm")), ("stale", of("stale"))] {
                if let Some(text) = text.filter(word) {
                    written.push_str(&format!(", {name}={text}"));
                }
            }
            Some(written)
        }
        _ => None,
    }
}

/// A host-only cookie; the program cannot set the ticket cookie.
fn own_cookie(cookie: &str) -> Option<String> {
    let mut parts = cookie.split(';');
    let own = parts.next()?.trim();
    // A nameless cookie is sent back as its value, which could be another cookie.
    let named = own.split_once('=').is_some_and(|(name, _)| !name.trim().is_empty());
    if is_ticket_pair(own.as_bytes()) || !named {
        return None;
    }
    let rest = parts.map(str::trim).filter(|part| {
        let name = part.split('=').next().unwrap_or_default().trim();
        !name.is_empty() && !name.eq_ignore_ascii_case("domain")
    });
    Some(std::iter::once(own).chain(rest).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
