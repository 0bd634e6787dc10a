//! The first message of a TLS connection, read by hand and only as far as the name of its server.
//! Bytes come from a stranger: every length is checked and nothing is kept.

use crate::host::Name;

/// A first message is never longer: today's, with keys of several kinds, have two kilobytes.
pub(crate) const LONGEST: usize = 32 * 1024;

const RECORD_HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// What has been heard of a first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// Not all of it yet.
    Partial,
    /// All of it; it is for this server.
    Named(Name),
    /// All of it; it names no server, or not by a name.
    Unnamed,
}

/// Why bytes are no first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// They are not TLS at all.
    #[error("not TLS")]
    NotTls,
    /// They begin like TLS and cannot be read.
    #[error("a TLS handshake that cannot be read")]
    Malformed,
}

/// Reads the name of the server from the first bytes of a connection.
pub fn server_name(bytes: &[u8]) -> Result<Hello, HelloError> {
    let Some(message) = handshake(bytes)? else { return Ok(Hello::Partial) };
    let mut hello = Reader(&message);
    // Version, random.
    hello.take(2 + 32)?;
    hello.vector(1)?; // session
    hello.vector(2)?; // ciphers
    hello.vector(1)?; // compression
    if hello.0.is_empty() {
        return Ok(Hello::Unnamed);
    }
    let mut extensions = Reader(hello.vector(2)?);
    if !hello.0.is_empty() {
        return Err(HelloError::Malformed);
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let content = extensions.vector(2)?;
        if kind == usize::from(SERVER_NAME) && found.replace(content).is_some() {
            return Err(HelloError::Malformed);
        }
    }
    found.map_or(Ok(Hello::Unnamed), name_in)
}

/// The one name of the extension. Lists of several, or of other kinds, are used by nobody honest.
fn name_in(content: &[u8]) -> Result<Hello, HelloError> {
    let mut outer = Reader(content);
    let mut list = Reader(outer.vector(2)?);
    let kind = list.number(1)?;
    let name = list.vector(2)?;
    if !outer.0.is_empty() || !list.0.is_empty() || kind != usize::from(HOST_NAME) {
        return Err(HelloError::Malformed);
    }
    let text = std::str::from_utf8(name).map_err(|_| HelloError::Malformed)?;
    // An address is not allowed here and names nothing.
    Ok(Name::parse(text).map_or(Hello::Unnamed, Hello::Named))
}

/// The body of the first message, put together from its records; `None` while some of it is missing.
fn handshake(bytes: &[u8]) -> Result<Option<Vec<u8>>, HelloError> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if rest.first().is_some_and(|&kind| kind != HANDSHAKE) || rest.get(1).is_some_and(|&major| major != 3)
        {
            return Err(if rest.len() == bytes.len() { HelloError::NotTls } else { HelloError::Malformed });
        }
        let Some((header, after)) = rest.split_at_checked(RECORD_HEADER) else { break };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > 16 * 1024 {
            return Err(HelloError::Malformed);
        }
        let part = after.get(..length).unwrap_or(after);
        message.extend_from_slice(part);
        if message.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
            return Err(HelloError::Malformed);
        }
        if let &[_, high, middle, low, ..] = &message[..] {
            let whole = 4 + usize::from(low) + (usize::from(middle) << 8) + (usize::from(high) << 16);
            if whole > LONGEST {
                return Err(HelloError::Malformed);
            }
            if message.len() >= whole {
                message.truncate(whole);
                message.drain(..4);
                return Ok(Some(message));
            }
        }
        if part.len() < length {
            break;
        }
        rest = &after[length..];
    }
    Ok(None)
}

/// Takes parts from the front of bytes.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of so many bytes.
    fn number(&mut self, width: usize) -> Result<usize, HelloError> {
        Ok(self.take(width)?.iter().fold(0, |sum, &byte| (sum << 8) | usize::from(byte)))
    }

    /// Bytes behind their length, which has so many bytes itself.
    fn vector(&mut self, width: usize) -> Result<&'b [u8], HelloError> {
        let length = self.number(width)?;
        self.take(length)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn vector(width: usize, content: &[u8]) -> Vec<u8> {
        let mut out = content.len().to_be_bytes()[8 - width..].to_vec();
        out.extend_from_slice(content);
        out
    }

    fn sni(names: &[(u8, &str)]) -> Vec<u8> {
        let list: Vec<u8> = names
            .iter()
            .flat_map(|(kind, name)| [vec![*kind], vector(2, name.as_bytes())].concat())
            .collect();
        [vec![0, 0], vector(2, &vector(2, &list))].concat()
    }

    fn hello(extensions: Option<&[u8]>) -> Vec<u8> {
        let mut body =
            [vec![3, 3], vec![7; 32], vector(1, &[9; 32]), vector(2, &[0x13, 1]), vector(1, &[0])].concat();
        if let Some(extensions) = extensions {
            body.extend(vector(2, extensions));
        }
        [vec![CLIENT_HELLO], vector(3, &body)].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|part| [vec![HANDSHAKE, 3, 1], vector(2, part)].concat()).collect()
    }

    /// A first message for a server, as a client sends it.
    pub(crate) fn client_hello(name: &str) -> Vec<u8> {
        let other = [vec![0, 43], vector(2, &[2, 3, 4])].concat();
        records(&hello(Some(&[other, sni(&[(0, name)])].concat())), 4096)
    }

    fn named(text: &str) -> Hello {
        Hello::Named(Name::parse(text).unwrap())
    }

    #[test]
    fn the_server_is_read_from_whole_and_split_messages() {
        let bytes = client_hello("Example.COM");
        assert_eq!(server_name(&bytes), Ok(named("example.com")));
        for end in 0..bytes.len() {
            assert_eq!(server_name(&bytes[..end]), Ok(Hello::Partial), "{end}");
        }
        let message = hello(Some(&sni(&[(0, "a.example")])));
        for size in [1, 2, 3, 50] {
            assert_eq!(server_name(&records(&message, size)), Ok(named("a.example")), "{size}");
        }
    }

    #[test]
    fn a_message_without_a_name_is_unnamed() {
        assert_eq!(server_name(&records(&hello(None), 4096)), Ok(Hello::Unnamed));
        assert_eq!(server_name(&records(&hello(Some(&[])), 4096)), Ok(Hello::Unnamed));
        for odd in ["127.0.0.1", "", "a b", "example.com\0.evil.example"] {
            assert_eq!(server_name(&client_hello(odd)), Ok(Hello::Unnamed), "{odd:?}");
        }
    }

    #[test]
    fn what_is_ambiguous_or_not_tls_is_refused() {
        let twice = [sni(&[(0, "a.example")]), sni(&[(0, "b.example")])].concat();
        let malformed = [
            records(&hello(Some(&twice)), 4096),
            records(&hello(Some(&sni(&[(0, "a.example"), (0, "b.example")]))), 4096),
            records(&hello(Some(&sni(&[(1, "a.example")]))), 4096),
            records(&hello(Some(&[0, 0, 0])), 4096),
            records(&[2, 0, 0, 1, 0], 4096),
            records(&[1, 1, 0, 0, 0], 4096),
            vec![22, 3, 1, 0, 0],
            [records(&hello(None)[..20], 4096), vec![23, 3, 3, 0, 1, 0]].concat(),
        ];
        for bytes in malformed {
            assert_eq!(server_name(&bytes), Err(HelloError::Malformed), "{bytes:?}");
        }
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"\x80\x2e\x01", b"SSH-2.0-x", &[22, 2]] {
            assert_eq!(server_name(bytes), Err(HelloError::NotTls), "{bytes:?}");
        }
    }

    #[test]
    fn changed_bytes_never_panic() {
        let bytes = client_hello("example.com");
        for position in 0..bytes.len() {
            for change in [1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[position] ^= change;
                server_name(&changed).ok();
            }
        }
    }
}
