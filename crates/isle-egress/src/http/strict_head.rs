//! The strict parser of HTTP/1 request heads, for the gate and for the daemon's own HTTP server. A head that
//! two servers could parse differently is rejected: that prevents request smuggling.

use crate::http::body_length::RequestBody;

/// Maximum length of a request head.
pub(crate) const LONGEST: usize = 64 * 1024;
/// Maximum number of headers.
const MOST_FIELDS: usize = 256;
/// Maximum number of digits of Content-Length.
const MOST_DIGITS: usize = 18;

/// Why a head is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadDefect {
    /// Not an HTTP/1 request line.
    #[error("it is not an HTTP/1 request")]
    NotHttp,
    /// A request line with characters that servers interpret differently.
    #[error("the request line has a character that servers interpret differently")]
    RequestLine,
    /// A line that is not a header, or is folded, or ends without CR LF.
    #[error("a header line is malformed: each is `Name: value`, ends in CR LF and is not folded")]
    Field,
    /// Too many headers, or too long.
    #[error("the head is too large or has too many headers")]
    TooLarge,
    /// More than one Host header.
    #[error("the Host header is given twice")]
    Hosts,
    /// A Content-Length that is not valid, or more than one.
    #[error("Content-Length is given twice or is not a number")]
    Length,
    /// Another transfer encoding than `chunked`, or `chunked` in HTTP/1.0.
    #[error("Transfer-Encoding is not exactly `chunked`")]
    Coding,
    /// Both Content-Length and Transfer-Encoding.
    #[error("it has both Content-Length and Transfer-Encoding")]
    LengthAndCoding,
}

/// A parsed head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StrictHead<'b> {
    pub(crate) method: &'b str,
    pub(crate) target: &'b str,
    pub(crate) version: &'b str,
    /// Names as they were sent, and values without surrounding white space.
    pub(crate) fields: Vec<(&'b str, &'b [u8])>,
    /// What follows. Protocol upgrades are decided by the caller.
    pub(crate) body: RequestBody,
}

/// The length of a head, once it is complete.
pub(crate) fn head_length(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|position| position + 4)
}

pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Parses a complete head, including the empty line at its end.
pub(crate) fn read_head(bytes: &[u8]) -> Result<StrictHead<'_>, HeadDefect> {
    let text = bytes.strip_suffix(b"\r\n\r\n").ok_or(HeadDefect::Field)?;
    let mut lines = split_lines(text);
    let (method, target, version) = request_line(lines.next().unwrap_or_default())?;
    let mut fields = Vec::new();
    let mut framing = Framing::default();
    for line in lines {
        let (name, value) = field(line)?;
        if fields.len() >= MOST_FIELDS {
            return Err(HeadDefect::TooLarge);
        }
        framing.take(name, value)?;
        fields.push((name, value));
    }
    let body = framing.body(version)?;
    Ok(StrictHead { method, target, version, fields, body })
}

/// The lines of a head, separated by CR LF. A lone CR or LF stays in its line.
fn split_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let bytes = rest?;
        match memchr::memmem::find(bytes, b"\r\n") {
            Some(end) => {
                rest = Some(&bytes[end + 2..]);
                Some(&bytes[..end])
            }
            None => rest.take(),
        }
    })
}

fn request_line(line: &[u8]) -> Result<(&str, &str, &str), HeadDefect> {
    let line = std::str::from_utf8(line).map_err(|_| HeadDefect::RequestLine)?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadDefect::NotHttp);
    };
    let known = matches!(version, "HTTP/1.1" | "HTTP/1.0");
    if method.is_empty() || !method.bytes().all(is_token) || !known {
        return Err(HeadDefect::NotHttp);
    }
    // A fragment is never sent; some servers treat it as part of the path, some remove it.
    let odd = |byte: u8| !byte.is_ascii_graphic() || byte == b'#';
    if target.is_empty() || target.bytes().any(odd) {
        return Err(HeadDefect::RequestLine);
    }
    Ok((method, target, version))
}

fn field(line: &[u8]) -> Result<(&str, &[u8]), HeadDefect> {
    if line.iter().any(|&byte| (byte < b' ' && byte != b'\t') || byte == 0x7f) {
        return Err(HeadDefect::Field);
    }
    let colon = memchr::memchr(b':', line).ok_or(HeadDefect::Field)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().copied().all(is_token) {
        return Err(HeadDefect::Field);
    }
    let name = std::str::from_utf8(name).map_err(|_| HeadDefect::Field)?;
    Ok((name, value.trim_ascii()))
}

/// What the headers say about where the request ends.
#[derive(Default)]
struct Framing {
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Framing {
    fn take(&mut self, name: &str, value: &[u8]) -> Result<(), HeadDefect> {
        if name.eq_ignore_ascii_case("host") {
            self.hosts += 1;
            if self.hosts > 1 {
                return Err(HeadDefect::Hosts);
            }
        } else if name.eq_ignore_ascii_case("content-length") {
            let digits =
                !value.is_empty() && value.len() <= MOST_DIGITS && value.iter().all(u8::is_ascii_digit);
            let number =
                std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
            if self.length.replace(number.ok_or(HeadDefect::Length)?).is_some() {
                return Err(HeadDefect::Length);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadDefect::Coding);
            }
            self.chunked = true;
        }
        Ok(())
    }

    fn body(&self, version: &str) -> Result<RequestBody, HeadDefect> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(HeadDefect::LengthAndCoding),
            // HTTP/1.0 has no chunks, and a server that follows it finds another end.
            (true, None) if version == "HTTP/1.0" => Err(HeadDefect::Coding),
            (true, None) => Ok(RequestBody::Chunked),
            (false, length) => Ok(RequestBody::Length(length.unwrap_or(0))),
        }
    }
}

#[cfg(test)]
#[path = "strict_head_tests.rs"]
mod tests;
