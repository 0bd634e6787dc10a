//! Placeholders and what stands for them outside. A sandbox knows a secret only by its placeholder; on
//! the way to the secret's own hosts the gate puts the value in its place: in header fields, in basic
//! authentication and in the query. Bodies are not touched, and elsewhere a placeholder stays what it is.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose::STANDARD};
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use zeroize::Zeroizing;

use crate::grant::Pattern;
use crate::host::{Host, Target};

/// What clients send as basic authentication, with or without its padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret, by what a sandbox knows of it.
#[derive(Clone)]
pub struct Swap {
    /// What the sandbox has in its place.
    pub placeholder: String,
    /// The secret itself.
    pub value: Zeroizing<String>,
    /// Where it may go.
    pub hosts: Vec<Pattern>,
}

impl Swap {
    /// Whether it may go to a host.
    #[must_use]
    pub fn is_for(&self, host: &Host) -> bool {
        self.hosts.iter().any(|pattern| pattern.covers(host))
    }
}

impl fmt::Debug for Swap {
    /// Without the value.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Swap")
            .field("placeholder", &self.placeholder)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// A placeholder on its way to somebody who does not get the secret; it went there as it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stray {
    /// The placeholder.
    pub placeholder: String,
    /// Where it was going, as `host:port`.
    pub target: String,
    /// Whether it is the secret's own host, and only the connection was not encrypted.
    pub unencrypted: bool,
}

/// The swaps of one sandbox. They are asked for at every request, so that a secret that was changed or
/// taken away is so at once.
pub trait Swaps: Send + Sync + fmt::Debug {
    /// The swaps in force now.
    fn current(&self) -> Arc<[Swap]>;

    /// A placeholder was seen where its secret does not go.
    fn strayed(&self, stray: &Stray);
}

/// What was done to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swapped {
    /// Placeholders that gave way to their values.
    pub used: Vec<String>,
    /// Placeholders that stayed, because the host is not one of their secret's.
    pub strayed: Vec<String>,
}

/// Why a request cannot go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SwapError {
    /// The value would end the header field it stands in, or cannot stand in one.
    #[error("the secret behind {0} has characters that no header field can carry")]
    Unfit(String),
    /// The request would be longer than servers take.
    #[error("with its secrets put in, the request has no valid address")]
    Target,
}

/// Where a value is put.
#[derive(Clone, Copy)]
enum Place {
    /// A header field, or basic authentication in it.
    Field,
    /// The query of an address, in which other characters are written with percent signs.
    Query,
}

/// Puts values in the place of the placeholders of a request to `host`: in header fields, in basic
/// authentication, in the query. Nothing is changed when it fails.
pub fn swap(parts: &mut Parts, host: &Host, swaps: &[Swap]) -> Result<Swapped, SwapError> {
    let mut swapping = Swapping { host, swaps, done: Swapped::default() };
    if swaps.is_empty() {
        return Ok(swapping.done);
    }
    let mut headers = parts.headers.clone();
    for (name, value) in &mut headers {
        // Where a request goes is decided, not filled in.
        if name == HOST {
            continue;
        }
        let basic = if name == AUTHORIZATION { swapping.basic(value.as_bytes())? } else { None };
        let new = match basic {
            Some(new) => Some(new),
            None => swapping.text(value.as_bytes(), Place::Field)?,
        };
        if let Some(new) = new {
            let mut new = HeaderValue::from_bytes(&new).map_err(|_| SwapError::Unfit(name.to_string()))?;
            // Not to be remembered by compression, nor shown.
            new.set_sensitive(true);
            *value = new;
        }
    }
    let uri = swapping.uri(&parts.uri)?;
    parts.headers = headers;
    if let Some(uri) = uri {
        parts.uri = uri;
    }
    Ok(swapping.done)
}

/// The placeholders that occur in bytes, where nothing is put in their place.
#[must_use]
pub fn placeholders_in<'s>(bytes: &[u8], swaps: &'s [Swap]) -> Vec<&'s Swap> {
    let decoded = basic_in_text(bytes);
    let occurs = |needle: &str| {
        memchr::memmem::find(bytes, needle.as_bytes()).is_some()
            || decoded.iter().any(|text| memchr::memmem::find(text, needle.as_bytes()).is_some())
    };
    swaps.iter().filter(|swap| occurs(&swap.placeholder)).collect()
}

/// What the words after `Basic` in a head say.
fn basic_in_text(bytes: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let (name, value) = line.split_at_checked(line.iter().position(|&byte| byte == b':')?)?;
            if !name.eq_ignore_ascii_case(AUTHORIZATION.as_str().as_bytes()) {
                return None;
            }
            decode_basic(value.get(1..)?.trim_ascii())
        })
        .collect()
}

/// What a field of basic authentication says.
fn decode_basic(value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, rest) = value.split_at_checked(value.iter().position(|&byte| byte == b' ')?)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    LENIENT.decode(rest.trim_ascii()).ok().map(Zeroizing::new)
}

impl Swap {
    /// As it is written in a place; `None` when it cannot be.
    fn written(&self, place: Place) -> Option<Cow<'_, str>> {
        match place {
            // A field ends at a line break, some servers end it at a NUL, and none takes other controls.
            Place::Field => {
                let fits = !self.value.contains(|character: char| character.is_ascii_control());
                fits.then_some(Cow::Borrowed(self.value.as_str()))
            }
            Place::Query => Some(Cow::Owned(percent_encoded(&self.value))),
        }
    }
}

struct Swapping<'s> {
    host: &'s Host,
    swaps: &'s [Swap],
    done: Swapped,
}

impl<'s> Swapping<'s> {
    /// The text with values in it, or `None` when it stays as it is. What was put in is not looked at
    /// again: a value that looks like a placeholder is still a value.
    fn text(&mut self, bytes: &[u8], place: Place) -> Result<Option<Zeroizing<Vec<u8>>>, SwapError> {
        let mut out: Option<Zeroizing<Vec<u8>>> = None;
        let mut from = 0;
        while let Some((at, found)) = self.first(&bytes[from..]) {
            let end = from + at + found.placeholder.len();
            let before = &bytes[from..from + at];
            let list = if found.is_for(self.host) {
                let value =
                    found.written(place).ok_or_else(|| SwapError::Unfit(found.placeholder.clone()))?;
                let out = out.get_or_insert_with(|| Zeroizing::new(bytes[..from].to_vec()));
                out.extend_from_slice(before);
                out.extend_from_slice(value.as_bytes());
                &mut self.done.used
            } else {
                if let Some(out) = &mut out {
                    out.extend_from_slice(&bytes[from..end]);
                }
                &mut self.done.strayed
            };
            if !list.contains(&found.placeholder) {
                list.push(found.placeholder.clone());
            }
            from = end;
        }
        if let Some(out) = &mut out {
            out.extend_from_slice(&bytes[from..]);
        }
        Ok(out)
    }

    /// The first placeholder in bytes.
    fn first(&self, bytes: &[u8]) -> Option<(usize, &'s Swap)> {
        let find = |swap: &'s Swap| Some((memchr::memmem::find(bytes, swap.placeholder.as_bytes())?, swap));
        // At one place the longest one stands.
        self.swaps
            .iter()
            .filter(|swap| !swap.placeholder.is_empty())
            .filter_map(find)
            .min_by_key(|(at, swap)| (*at, usize::MAX - swap.placeholder.len()))
    }

    /// Basic authentication with values in it.
    fn basic(&mut self, value: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, SwapError> {
        let Some(decoded) = decode_basic(value) else { return Ok(None) };
        let Some(new) = self.text(&decoded, Place::Field)? else { return Ok(None) };
        let encoded = Zeroizing::new(STANDARD.encode(&*new));
        Ok(Some(Zeroizing::new([b"Basic ", encoded.as_bytes()].concat())))
    }

    /// The address with values in its query.
    fn uri(&mut self, uri: &Uri) -> Result<Option<Uri>, SwapError> {
        let Some(query) = uri.query() else { return Ok(None) };
        let Some(new) = self.text(query.as_bytes(), Place::Query)? else { return Ok(None) };
        let mut parts = uri.clone().into_parts();
        let whole = Zeroizing::new([uri.path().as_bytes(), b"?", &new].concat());
        parts.path_and_query = Some(PathAndQuery::try_from(&whole[..]).map_err(|_| SwapError::Target)?);
        Uri::from_parts(parts).map(Some).map_err(|_| SwapError::Target)
    }
}

/// A value as it is written in a query.
fn percent_encoded(value: &str) -> String {
    let mut out = String::with_capacity(3 * value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Tells of every placeholder that stayed one.
pub(crate) fn tell_strays(
    swaps: &dyn Swaps,
    strayed: impl IntoIterator<Item = String>,
    target: &Target,
    unencrypted: bool,
) {
    for placeholder in strayed {
        swaps.strayed(&Stray { placeholder, target: target.to_string(), unencrypted });
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn one(name: &str, value: &str, host: &str) -> Swap {
        Swap {
            placeholder: format!("isle-secret-{name}-{}", "0f".repeat(16)),
            value: Zeroizing::new(value.to_owned()),
            hosts: vec![Pattern::parse(host).unwrap()],
        }
    }

    fn swaps() -> Vec<Swap> {
        vec![one("key", "s3cr3t", "api.test"), one("other", "0th3r", "*.other.test")]
    }

    fn parts(uri: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn field<'p>(parts: &'p Parts, name: &str) -> &'p str {
        parts.headers[name].to_str().unwrap()
    }

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn a_placeholder_gives_way_in_fields_of_its_own_host_only() {
        let swaps = swaps();
        let (key, other) = (&swaps[0].placeholder, &swaps[1].placeholder);
        let bearer = format!("Bearer {key}");
        let both = format!("{key},{other};{key}");
        let make = || parts("/v1/x", &[("authorization", &bearer), ("x-keys", &both), ("accept", "*/*")]);
        let mut request = make();
        let done = swap(&mut request, &host("api.test"), &swaps).unwrap();
        assert_eq!(field(&request, "authorization"), "Bearer s3cr3t");
        assert_eq!(field(&request, "x-keys"), format!("s3cr3t,{other};s3cr3t"));
        assert_eq!(field(&request, "accept"), "*/*");
        assert!(request.headers["authorization"].is_sensitive() && !request.headers["accept"].is_sensitive());
        assert_eq!((done.used, done.strayed), (vec![key.clone()], vec![other.clone()]));
        let mut request = make();
        let done = swap(&mut request, &host("a.other.test"), &swaps).unwrap();
        assert_eq!(field(&request, "authorization"), bearer);
        assert_eq!(field(&request, "x-keys"), format!("{key},0th3r;{key}"));
        assert_eq!((done.used, done.strayed), (vec![other.clone()], vec![key.clone()]));
        for elsewhere in ["evil.test", "api.test.evil.test", "other.test", "127.0.0.1"] {
            let mut request = make();
            let done = swap(&mut request, &host(elsewhere), &swaps).unwrap();
            assert_eq!((field(&request, "x-keys"), done.used.len()), (both.as_str(), 0), "{elsewhere}");
            assert_eq!(done.strayed.len(), 2, "{elsewhere}");
        }
    }

    #[test]
    fn basic_authentication_is_opened_and_closed_again() {
        let swaps = swaps();
        let key = &swaps[0].placeholder;
        for (scheme, encoded) in [
            ("Basic", STANDARD.encode(format!("me:{key}"))),
            ("basic", STANDARD.encode(format!("me:{key}")).trim_end_matches('=').to_owned()),
        ] {
            let mut request = parts("/", &[("authorization", &format!("{scheme} {encoded}"))]);
            swap(&mut request, &host("api.test"), &swaps).unwrap();
            assert_eq!(
                field(&request, "authorization"),
                format!("Basic {}", STANDARD.encode("me:s3cr3t")),
                "{scheme}"
            );
        }
        let untouched = format!("Basic {}", STANDARD.encode("me:you"));
        let mut request = parts("/", &[("authorization", &untouched)]);
        assert_eq!(swap(&mut request, &host("api.test"), &swaps), Ok(Swapped::default()));
        assert_eq!(field(&request, "authorization"), untouched);
        let mut request = parts("/", &[("authorization", &format!("Basic {}", STANDARD.encode(key)))]);
        let done = swap(&mut request, &host("evil.test"), &swaps).unwrap();
        assert_eq!(done.strayed, std::slice::from_ref(key));
        assert!(!field(&request, "authorization").contains("s3cr3t"));
        let mut request = parts("/", &[("authorization", "Basic !!!")]);
        assert_eq!(swap(&mut request, &host("api.test"), &swaps), Ok(Swapped::default()));
    }

    #[test]
    fn a_query_is_swapped_and_a_path_is_not() {
        let swaps = [one("key", "a b&c=d/ü%\r\n#", "api.test")];
        let key = &swaps[0].placeholder;
        let mut request = parts(&format!("https://api.test/{key}?a=1&key={key}&z"), &[]);
        swap(&mut request, &host("api.test"), &swaps).unwrap();
        assert_eq!(
            request.uri.to_string(),
            format!("https://api.test/{key}?a=1&key=a%20b%26c%3Dd%2F%C3%BC%25%0D%0A%23&z")
        );
        let mut request = parts(&format!("/?key={key}"), &[]);
        assert_eq!(swap(&mut request, &host("evil.test"), &swaps).unwrap().strayed.len(), 1);
        assert_eq!(request.uri.to_string(), format!("/?key={key}"));
    }

    #[test]
    fn a_value_that_would_add_lines_is_refused_and_nothing_is_changed() {
        for value in ["a\r\nX-Admin: 1", "a\nb", "a\0b", "a\rb", "a\u{1b}b"] {
            let swaps = [one("good", "fine", "api.test"), one("bad", value, "api.test")];
            let (good, bad) = (&swaps[0].placeholder, &swaps[1].placeholder);
            let mut request = parts("/", &[("a", good), ("x-key", bad)]);
            let refused = swap(&mut request, &host("api.test"), &swaps).unwrap_err();
            assert_eq!(refused, SwapError::Unfit(bad.clone()), "{value:?}");
            assert!(!refused.to_string().contains(value));
            assert_eq!(field(&request, "a"), good, "{value:?}");
        }
        for value in ["a\r\nb", "a\0b"] {
            let swaps = [one("bad", value, "api.test")];
            let basic = format!("Basic {}", STANDARD.encode(&swaps[0].placeholder));
            let mut request = parts("/", &[("authorization", &basic)]);
            assert!(swap(&mut request, &host("api.test"), &swaps).is_err(), "{value:?}");
        }
    }

    #[test]
    fn a_value_that_looks_like_a_placeholder_is_put_in_as_it_is() {
        let inner = one("inner", "deep", "api.test");
        let swaps = [one("outer", &inner.placeholder, "api.test"), inner.clone()];
        let mut request = parts("/", &[("x", &format!("{} {}", swaps[0].placeholder, inner.placeholder))]);
        swap(&mut request, &host("api.test"), &swaps).unwrap();
        assert_eq!(field(&request, "x"), format!("{} deep", inner.placeholder));
    }

    #[test]
    fn the_host_of_a_request_is_never_filled_in() {
        let swaps = [one("key", "evil.test", "api.test")];
        let mut request = parts("/", &[("host", &swaps[0].placeholder)]);
        swap(&mut request, &host("api.test"), &swaps).unwrap();
        assert_eq!(field(&request, "host"), swaps[0].placeholder);
    }

    #[test]
    fn placeholders_are_found_in_a_head_as_it_was_sent() {
        let swaps = swaps();
        let key = &swaps[0].placeholder;
        let basic = STANDARD.encode(format!("me:{key}"));
        for head in [
            format!("GET /?k={key} HTTP/1.1\r\n\r\n"),
            format!("GET / HTTP/1.1\r\nAuthorization: Basic {basic}\r\n\r\n"),
        ] {
            let found: Vec<_> =
                placeholders_in(head.as_bytes(), &swaps).iter().map(|swap| &swap.placeholder).collect();
            assert_eq!(found, [key], "{head}");
        }
        assert!(
            placeholders_in(b"GET / HTTP/1.1\r\nAuthorization: Basic bWU6eW91\r\n\r\n", &swaps).is_empty()
        );
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert!(!format!("{:?}", swaps()).contains("s3cr3t"));
    }
}
