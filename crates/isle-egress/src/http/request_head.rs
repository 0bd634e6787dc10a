//! The head of an HTTP/1 request on a connection that is granted for HTTP: parsed strictly, checked against
//! the granted host, and rewritten so that the connection ends with its response. So no later request on it
//! can name another host.

use crate::http::body_length::RequestBody;
use crate::http::override_headers::override_header;
use crate::http::strict_head::{HeadDefect, LONGEST, StrictHead, head_length, read_head};
use crate::policy::host::Target;

/// The result of parsing a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadResult {
    /// Incomplete.
    Partial,
    /// Complete and allowed.
    Whole(Head),
}

/// A head that is passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What is sent in its place.
    pub rewritten: Vec<u8>,
    /// The number of bytes it had.
    pub length: usize,
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// A header that makes some servers use another method or path.
    pub override_header: Option<String>,
    /// What follows the head.
    pub body: RequestBody,
}

/// Why a head is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Not HTTP/1.
    #[error("not HTTP/1")]
    NotHttp,
    /// Another host, or none.
    #[error("another host, or none")]
    WrongHost,
    /// Servers could parse it differently.
    #[error("{0}")]
    Ambiguous(HeadDefect),
}

impl From<HeadDefect> for HeadError {
    fn from(flaw: HeadDefect) -> Self {
        match flaw {
            HeadDefect::NotHttp => Self::NotHttp,
            HeadDefect::Hosts => Self::WrongHost,
            flaw => Self::Ambiguous(flaw),
        }
    }
}

/// Whether bytes look like the beginning of an HTTP request, so that the program understands an HTTP
/// response.
pub(crate) fn looks_like_request(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|&byte| byte == b' ').unwrap_or(0);
    (3..=16).contains(&end) && bytes[..end].iter().all(u8::is_ascii_uppercase)
}

/// Parses a head and checks it against its target.
pub fn check_head(bytes: &[u8], target: &Target) -> Result<HeadResult, HeadError> {
    let Some(length) = head_length(bytes) else {
        let line_end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
        let begins_well =
            bytes.iter().take(line_end).take(8).all(|byte| byte.is_ascii_graphic() || *byte == b' ');
        return if begins_well && bytes.len() < LONGEST {
            Ok(HeadResult::Partial)
        } else {
            Err(HeadError::NotHttp)
        };
    };
    if length > LONGEST {
        return Err(HeadError::NotHttp);
    }
    let head = read_head(&bytes[..length])?;
    let what = origin_form(&head, target)?;
    let mut fields = Fields::default();
    let mut rewritten = format!("{} {what} {}\r\n", head.method, head.version).into_bytes();
    for &(name, value) in &head.fields {
        if fields.take(&name.to_ascii_lowercase(), value, target)? {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                rewritten.extend_from_slice(part);
            }
        }
    }
    if fields.hosts != 1 {
        return Err(HeadError::WrongHost);
    }
    let body = match head.body {
        RequestBody::Length(0) if fields.upgrades && fields.websocket => RequestBody::Upgrade,
        body => body,
    };
    let connection: &[u8] = match body {
        RequestBody::Upgrade => b"Connection: Upgrade, close\r\n\r\n",
        RequestBody::Length(_) | RequestBody::Chunked => b"Connection: close\r\n\r\n",
    };
    rewritten.extend_from_slice(connection);
    let path = what.split('?').next().unwrap_or_default().to_owned();
    let method = head.method.to_owned();
    let names = head.fields.iter().map(|(name, _)| *name);
    let override_header = override_header(names).map(str::to_owned);
    Ok(HeadResult::Whole(Head { rewritten, length, method, path, override_header, body }))
}

/// The request target in origin form; an absolute URI has to be that of the target.
fn origin_form(head: &StrictHead<'_>, target: &Target) -> Result<String, HeadError> {
    let what = head.target;
    if head.method == "CONNECT" || head.method == "PRI" {
        return Err(HeadError::NotHttp);
    }
    if what.starts_with('/') || what == "*" {
        return Ok(what.to_owned());
    }
    let rest = what.strip_prefix("http://").ok_or(HeadError::Ambiguous(HeadDefect::RequestLine))?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    is_target(authority, target)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(format!("{slash}{path}"))
}

pub(crate) fn is_target(authority: &str, target: &Target) -> Result<(), HeadError> {
    let named = Target::parse(authority, Some(target.port)).map_err(|_| HeadError::WrongHost)?;
    let same = (&named.host, named.port) == (&target.host, target.port);
    if same { Ok(()) } else { Err(HeadError::WrongHost) }
}

#[derive(Default)]
struct Fields {
    hosts: usize,
    upgrades: bool,
    websocket: bool,
}

impl Fields {
    /// Processes a header; returns whether it is passed on.
    fn take(&mut self, name: &str, value: &[u8], target: &Target) -> Result<bool, HeadError> {
        match name {
            "host" => {
                self.hosts += 1;
                // Clients omit the port only if it is the default.
                is_target(std::str::from_utf8(value).map_err(|_| HeadError::WrongHost)?, target)?;
            }
            "connection" => {
                let mut words = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                self.upgrades |= words.any(|word| word.eq_ignore_ascii_case(b"upgrade"));
                return Ok(false);
            }
            "upgrade" => {
                let websocket = value.eq_ignore_ascii_case(b"websocket");
                self.websocket |= websocket;
                return Ok(websocket);
            }
            "keep-alive" | "proxy-connection" | "proxy-authorization" | "http2-settings" => return Ok(false),
            _ => {}
        }
        Ok(true)
    }
}

#[cfg(test)]
#[path = "request_head_tests.rs"]
mod tests;
