//! Where in a request the value of a secret may be placed. A server that returns parts of a request reveals a
//! value to the program that chose its place, so the owner of the secret chooses; by default only headers
//! that servers treat as credentials are allowed.

use std::fmt;
use std::str::FromStr;

use http::Method;
use http::header::{AUTHORIZATION, HeaderName};

/// Headers of common services that contain a key and nothing else. In lower case.
pub const API_KEY_HEADERS: [&str; 40] = [
    "api-key",
    "apikey",
    "circle-token",
    "dd-api-key",
    "dd-application-key",
    "deploy-token",
    "fastly-key",
    "job-token",
    "ocp-apim-subscription-key",
    "private-token",
    "x-access-token",
    "x-algolia-api-key",
    "x-amz-security-token",
    "x-api-key",
    "x-api-token",
    "x-apikey",
    "x-auth-key",
    "x-auth-token",
    "x-consul-token",
    "x-figma-token",
    "x-functions-key",
    "x-gitlab-token",
    "x-goog-api-key",
    "x-honeycomb-team",
    "x-jfrog-art-api",
    "x-key",
    "x-n8n-api-key",
    "x-nomad-token",
    "x-postmark-account-token",
    "x-postmark-server-token",
    "x-rapidapi-key",
    "x-redmine-api-key",
    "x-riot-token",
    "x-shopify-access-token",
    "x-subscription-token",
    "x-token",
    "x-typesense-api-key",
    "x-vault-token",
    "xi-api-key",
    "zotero-api-key",
];

/// Headers that determine where a request goes, where it ends, or how it is answered. They never contain a
/// secret, not even by name.
const NEVER: [&str; 22] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "if-range",
    "keep-alive",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-version",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Methods with which secrets are sent.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Methods whose response contains the request, or that open a tunnel.
const REFLECTING: [&str; 5] = ["CONNECT", "DEBUG", "PRI", "TRACE", "TRACK"];

const LONGEST: usize = 64;
/// Maximum number of placements of one secret.
const MOST: usize = 16;

/// A place in a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The credential of `Authorization`: after its scheme, or the password of `Basic`.
    Authorization,
    /// One of [`API_KEY_HEADERS`].
    ApiKey,
    /// The user of `Basic` authentication.
    BasicUser,
    /// Anywhere in a header of this name.
    Header(HeaderName),
    /// The whole value of a query parameter of this name.
    Query(String),
    /// In requests of this method, besides the default ones.
    Method(Method),
}

/// Why a text is not a valid placement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Unknown.
    #[error("{0:?} is not a valid placement")]
    Unknown(String),
    /// A header that never contains a secret.
    #[error(
        "no secret can be placed in the header {0}: it determines where a request goes or how it is answered"
    )]
    Header(String),
    /// A method whose response contains the request.
    #[error("no secret can be sent with {0}: its response contains the request")]
    Method(String),
    /// Too many.
    #[error("a secret has at most {MOST} placements")]
    TooMany,
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let unknown = || PlacementError::Unknown(text.to_owned());
        match text.split_once(':') {
            None => match text {
                "authorization" => Ok(Self::Authorization),
                "api-key" => Ok(Self::ApiKey),
                "basic-user" => Ok(Self::BasicUser),
                _ => Err(unknown()),
            },
            Some(("header", name)) => {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unknown())?;
                match name.as_str() {
                    never if NEVER.contains(&never) => Err(PlacementError::Header(never.to_owned())),
                    long if long.len() > LONGEST => Err(unknown()),
                    _ => Ok(Self::Header(name)),
                }
            }
            Some(("query", name)) => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~[]".contains(&byte);
                let fits = (1..=LONGEST).contains(&name.len()) && name.bytes().all(plain);
                fits.then(|| Self::Query(name.to_owned())).ok_or_else(unknown)
            }
            Some(("method", name)) => {
                let method = name.to_ascii_uppercase();
                if REFLECTING.contains(&method.as_str()) {
                    return Err(PlacementError::Method(method));
                }
                let word = (1..=LONGEST).contains(&method.len())
                    && method.bytes().all(|byte| byte.is_ascii_uppercase());
                let method = Method::from_bytes(method.as_bytes()).ok().filter(|_| word);
                method.map(Self::Method).ok_or_else(unknown)
            }
            Some(_) => Err(unknown()),
        }
    }
}

impl fmt::Display for Placement {
    /// In the form that is parsed.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authorization => formatter.write_str("authorization"),
            Self::ApiKey => formatter.write_str("api-key"),
            Self::BasicUser => formatter.write_str("basic-user"),
            Self::Header(name) => write!(formatter, "header:{name}"),
            Self::Query(name) => write!(formatter, "query:{name}"),
            Self::Method(method) => write!(formatter, "method:{method}"),
        }
    }
}

/// The placements of one secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placements(Vec<Placement>);

impl Default for Placements {
    fn default() -> Self {
        Self(vec![Placement::Authorization, Placement::ApiKey])
    }
}

impl Placements {
    /// Parses placements; `default` means the default ones.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, PlacementError> {
        let mut all: Vec<Placement> = Vec::new();
        for text in texts {
            let parsed = match text.as_ref() {
                "default" => Self::default().0,
                text => vec![text.parse()?],
            };
            for placement in parsed {
                if !all.contains(&placement) {
                    all.push(placement);
                }
            }
        }
        if all.len() > MOST {
            return Err(PlacementError::TooMany);
        }
        Ok(Self(all))
    }

    /// In the form that is parsed.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    fn has(&self, placement: &Placement) -> bool {
        self.0.contains(placement)
    }

    /// Whether a secret is sent with this method.
    pub(crate) fn takes_method(&self, method: &Method) -> bool {
        METHODS.contains(method) || self.has(&Placement::Method(method.clone()))
    }

    /// The placement that allows a value in a header, in place of `placeholder`.
    pub(crate) fn in_header(&self, name: &HeaderName, value: &[u8], placeholder: &str) -> Option<Placement> {
        let named = Placement::Header(name.clone());
        if self.has(&named) {
            return Some(named);
        }
        let usual = if name == AUTHORIZATION {
            Placement::Authorization
        } else if API_KEY_HEADERS.contains(&name.as_str()) {
            Placement::ApiKey
        } else {
            return None;
        };
        (self.has(&usual) && is_credential(value, placeholder.as_bytes())).then_some(usual)
    }

    /// The placement that allows a value in basic authentication: in the user or in the password.
    pub(crate) fn in_basic(&self, part: BasicPart, text: &[u8], placeholder: &str) -> Option<Placement> {
        let named = Placement::Header(AUTHORIZATION);
        if self.has(&named) {
            return Some(named);
        }
        let usual = match part {
            BasicPart::User => Placement::BasicUser,
            BasicPart::Password => Placement::Authorization,
        };
        (self.has(&usual) && text == placeholder.as_bytes()).then_some(usual)
    }

    /// The placement that allows a value in a query parameter.
    pub(crate) fn in_query(&self, name: &[u8], value: &[u8], placeholder: &str) -> Option<Placement> {
        let name = std::str::from_utf8(name).ok()?;
        let named = Placement::Query(name.to_owned());
        (self.has(&named) && value == placeholder.as_bytes()).then_some(named)
    }
}

/// A part of basic authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BasicPart {
    User,
    Password,
}

/// Whether a header is a credential and nothing else: the placeholder, optionally after a scheme: `Bearer X`,
/// `token X`, `Token token="X"`. Parameters of other schemes may be returned by servers (`realm`,
/// `oauth_callback`) and need `header:authorization`.
fn is_credential(value: &[u8], placeholder: &[u8]) -> bool {
    let Some(at) = memchr::memmem::find(value, placeholder) else { return false };
    let (before, after) = (&value[..at], value[at + placeholder.len()..].trim_ascii_end());
    let is_token = |text: &[u8]| {
        !text.is_empty()
            && text.len() <= LONGEST
            && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    let Some((scheme, rest)) =
        before.iter().position(|&byte| byte == b' ').map(|space| before.split_at(space))
    else {
        return before.is_empty() && after.is_empty();
    };
    // What follows `Basic` is encoded, and was already checked.
    if !is_token(scheme) || scheme.eq_ignore_ascii_case(b"basic") {
        return false;
    }
    match (rest.trim_ascii_start(), after) {
        (b"", b"") => true,
        // The form of Rails: `Token token="…"`.
        (b"token=", b"") | (b"token=\"", b"\"") => scheme.eq_ignore_ascii_case(b"token"),
        _ => false,
    }
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
