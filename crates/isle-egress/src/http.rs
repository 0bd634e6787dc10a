//! The head of an HTTP/1 request on a connection that is granted for HTTP: read strictly, held to the
//! granted host, and passed on so that the connection ends with its answer. So no later request on it
//! can name another host.

use crate::body::Body;
use crate::host::Target;

/// Longest head.
pub(crate) const LONGEST: usize = 64 * 1024;

/// What became of a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadResult {
    /// Not all of it is there yet.
    Partial,
    /// It may pass.
    Whole(Head),
}

/// A head that may pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What is passed on in its place.
    pub rewritten: Vec<u8>,
    /// How many bytes it had.
    pub length: usize,
    /// What is to be done.
    pub method: String,
    /// With what, without a query.
    pub path: String,
    /// What follows it.
    pub body: Body,
}

/// Why a head may not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Not HTTP/1.
    #[error("not HTTP/1")]
    NotHttp,
    /// It names another host, or none.
    #[error("another host, or none")]
    WrongHost,
    /// Servers could read it in different ways.
    #[error("it can be read in two ways")]
    Ambiguous,
}

/// Whether bytes look like the beginning of an HTTP request, so that an answer in HTTP is understood.
pub(crate) fn looks_like_request(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|&byte| byte == b' ').unwrap_or(0);
    (3..=16).contains(&end) && bytes[..end].iter().all(u8::is_ascii_uppercase)
}

/// Reads a head and holds it to its target.
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
    let text = std::str::from_utf8(&bytes[..length - 4]).map_err(|_| HeadError::Ambiguous)?;
    let mut lines = text.split("\r\n");
    let request = lines.next().unwrap_or_default();
    let (method, what, version) = request_line(request, target)?;
    let mut fields = Fields::default();
    let mut rewritten = format!("{method} {what} {version}\r\n");
    for line in lines {
        if line.bytes().any(|byte| (byte < b' ' && byte != b'\t') || byte == 0x7f) {
            return Err(HeadError::Ambiguous);
        }
        let (name, value) = line.split_once(':').ok_or(HeadError::Ambiguous)?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(HeadError::Ambiguous);
        }
        if fields.take(&name.to_ascii_lowercase(), value.trim_matches([' ', '\t']), target)? {
            rewritten.push_str(line);
            rewritten.push_str("\r\n");
        }
    }
    if fields.hosts != 1 {
        return Err(HeadError::WrongHost);
    }
    // The older version knows no chunks, and who reads it so finds another end.
    let chunks_nobody_knows = fields.encodings > 0 && version == "HTTP/1.0";
    if fields.lengths + fields.encodings > 1 || chunks_nobody_knows {
        return Err(HeadError::Ambiguous);
    }
    rewritten.push_str(fields.connection());
    rewritten.push_str("\r\n");
    let path = what.split('?').next().unwrap_or_default().to_owned();
    let method = method.to_owned();
    let (rewritten, body) = (rewritten.into_bytes(), fields.body());
    Ok(HeadResult::Whole(Head { rewritten, length, method, path, body }))
}

pub(crate) fn head_length(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|position| position + 4)
}

pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The words of the request line, in the form servers expect; a whole address has to be that of the
/// target.
fn request_line<'l>(line: &'l str, target: &Target) -> Result<(&'l str, String, &'l str), HeadError> {
    let mut words = line.split(' ');
    let (Some(method), Some(what), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadError::NotHttp);
    };
    let known = matches!(version, "HTTP/1.1" | "HTTP/1.0");
    if method.is_empty() || !method.bytes().all(is_token) || !known || method == "CONNECT" || method == "PRI"
    {
        return Err(HeadError::NotHttp);
    }
    if what.is_empty() || !what.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(HeadError::Ambiguous);
    }
    if what.starts_with('/') || what == "*" {
        return Ok((method, what.to_owned(), version));
    }
    let rest = what.strip_prefix("http://").ok_or(HeadError::Ambiguous)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    is_target(authority, target)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok((method, format!("{slash}{path}"), version))
}

pub(crate) fn is_target(authority: &str, target: &Target) -> Result<(), HeadError> {
    let named = Target::parse(authority, Some(target.port)).map_err(|_| HeadError::WrongHost)?;
    if named == *target { Ok(()) } else { Err(HeadError::WrongHost) }
}

#[derive(Default)]
struct Fields {
    hosts: usize,
    lengths: usize,
    length: u64,
    encodings: usize,
    upgrades: bool,
    websocket: bool,
}

impl Fields {
    /// Takes note of a field; says whether it is passed on.
    fn take(&mut self, name: &str, value: &str, target: &Target) -> Result<bool, HeadError> {
        match name {
            "host" => {
                self.hosts += 1;
                // Clients leave out the port only where it is the common one.
                is_target(value, target)?;
            }
            "content-length" => {
                self.lengths += 1;
                if value.is_empty() || value.len() > 18 || !value.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(HeadError::Ambiguous);
                }
                self.length = value.parse().map_err(|_| HeadError::Ambiguous)?;
            }
            "transfer-encoding" => {
                self.encodings += 1;
                if !value.eq_ignore_ascii_case("chunked") {
                    return Err(HeadError::Ambiguous);
                }
            }
            "connection" => {
                self.upgrades |= value.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
                return Ok(false);
            }
            "upgrade" => {
                let websocket = value.eq_ignore_ascii_case("websocket");
                self.websocket |= websocket;
                return Ok(websocket);
            }
            "keep-alive" | "proxy-connection" | "proxy-authorization" | "http2-settings" => return Ok(false),
            _ => {}
        }
        Ok(true)
    }

    fn body(&self) -> Body {
        match (self.encodings, self.length) {
            (0, 0) if self.upgrades && self.websocket => Body::Upgrade,
            (0, length) => Body::Length(length),
            (1.., _) => Body::Chunked,
        }
    }

    fn connection(&self) -> &'static str {
        if self.body() == Body::Upgrade { "Connection: Upgrade, close\r\n" } else { "Connection: close\r\n" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str) -> Result<String, HeadError> {
        let target = Target::parse("example.com:80", None).unwrap();
        match check_head(head.as_bytes(), &target)? {
            HeadResult::Partial => Ok("partial".into()),
            HeadResult::Whole(head) => Ok(String::from_utf8(head.rewritten).unwrap()),
        }
    }

    #[test]
    fn a_request_to_the_granted_host_passes_and_ends_its_connection() {
        for host in ["example.com", "Example.COM", "example.com.", "example.com:80"] {
            let head =
                format!("GET /a?b HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive\r\nAccept: */*\r\n\r\n");
            let passed =
                format!("GET /a?b HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nConnection: close\r\n\r\n");
            assert_eq!(check(&head), Ok(passed));
        }
        assert_eq!(
            check("GET http://example.com/x HTTP/1.1\r\nHost: example.com\r\n\r\n").unwrap(),
            "GET /x HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"
        );
        let upgrade =
            "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        assert!(check(upgrade).unwrap().contains("Connection: Upgrade, close\r\n"));
        let other = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n";
        assert_eq!(check(other).unwrap(), "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
        let two = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n";
        assert!(!check(two).unwrap().contains("h2c"));
    }

    #[test]
    fn a_request_to_another_host_or_none_is_refused() {
        for head in [
            "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com.evil.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com:81\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: user@example.com\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\r\nHost: example.com\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\r\nhOsT: evil.example\r\n\r\n",
            "GET http://evil.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "GET http://example.com@evil.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
        ] {
            assert_eq!(check(head), Err(HeadError::WrongHost), "{head:?}");
        }
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        for head in [
            "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: +1\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : example.com\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\r\n X: folded\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\nHost: evil.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\r\nX\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\r\nX: a\0b\r\n\r\n",
            "GET evil HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "POST / HTTP/1.0\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert_eq!(check(head), Err(HeadError::Ambiguous), "{head:?}");
        }
    }

    #[test]
    fn other_protocols_are_not_http() {
        for bytes in [
            "CONNECT example.com:80 HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "GET /\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "\u{16}\u{3}\u{1}",
        ] {
            assert_eq!(check(bytes), Err(HeadError::NotHttp), "{bytes:?}");
        }
        assert_eq!(check(&"A".repeat(LONGEST)), Err(HeadError::NotHttp));
    }

    #[test]
    fn a_head_is_waited_for() {
        let head = "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";
        for end in 0..head.len() {
            assert_eq!(check(&head[..end]).as_deref(), Ok("partial"), "{end}");
        }
    }
}
