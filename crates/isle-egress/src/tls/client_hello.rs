//! The TLS ClientHello, parsed only for the server name (SNI). Its bytes are untrusted: every length is
//! checked.

use crate::policy::host::Name;

/// Maximum length of a ClientHello; typical ones have up to two kilobytes.
pub(crate) const LONGEST: usize = 32 * 1024;

const RECORD_HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// A ClientHello, as far as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientHello {
    /// Incomplete.
    Partial,
    /// Complete, with this server name.
    Named(Name),
    /// Complete, without a server name, or with one that is not a host name.
    Unnamed,
}

/// Why bytes are not a ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientHelloError {
    /// Not TLS.
    #[error("not TLS")]
    NotTls,
    /// They begin like TLS, but are malformed.
    #[error("malformed TLS ClientHello")]
    Malformed,
}

/// Parses the server name from the first bytes of a connection.
pub fn server_name(bytes: &[u8]) -> Result<ClientHello, ClientHelloError> {
    ClientHelloReader::default().read(bytes)
}

/// Parses a ClientHello incrementally. Bytes are parsed only once, however small the pieces are.
#[derive(Debug, Default)]
pub(crate) struct ClientHelloReader {
    /// The message, assembled from its records.
    message: Vec<u8>,
    /// The start of the incomplete record, and how much of it is in the message.
    record: usize,
    taken: usize,
}

impl ClientHelloReader {
    /// The server name, from all bytes received so far.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<ClientHello, ClientHelloError> {
        if self.assemble(bytes)? { name_of(&self.message[4..]) } else { Ok(ClientHello::Partial) }
    }

    /// Assembles the message; returns whether it is complete.
    fn assemble(&mut self, bytes: &[u8]) -> Result<bool, ClientHelloError> {
        loop {
            let rest = bytes.get(self.record..).unwrap_or_default();
            if rest.first().is_some_and(|&kind| kind != HANDSHAKE)
                || rest.get(1).is_some_and(|&major| major != 3)
            {
                return Err(if self.record == 0 {
                    ClientHelloError::NotTls
                } else {
                    ClientHelloError::Malformed
                });
            }
            let Some((header, after)) = rest.split_at_checked(RECORD_HEADER) else { return Ok(false) };
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            if length == 0 || length > 16 * 1024 {
                return Err(ClientHelloError::Malformed);
            }
            let part = after.get(..length).unwrap_or(after);
            self.message.extend_from_slice(part.get(self.taken..).unwrap_or_default());
            self.taken = part.len();
            if self.message.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
                return Err(ClientHelloError::Malformed);
            }
            if let &[_, high, middle, low, ..] = &self.message[..] {
                let whole = 4 + usize::from(low) + (usize::from(middle) << 8) + (usize::from(high) << 16);
                if whole > LONGEST {
                    return Err(ClientHelloError::Malformed);
                }
                if self.message.len() >= whole {
                    self.message.truncate(whole);
                    return Ok(true);
                }
            }
            if part.len() < length {
                return Ok(false);
            }
            self.record += RECORD_HEADER + length;
            self.taken = 0;
        }
    }
}

fn name_of(message: &[u8]) -> Result<ClientHello, ClientHelloError> {
    let mut hello = Reader(message);
    // Version, random.
    hello.take(2 + 32)?;
    hello.vector(1)?; // session
    hello.vector(2)?; // ciphers
    hello.vector(1)?; // compression
    if hello.0.is_empty() {
        return Ok(ClientHello::Unnamed);
    }
    let mut extensions = Reader(hello.vector(2)?);
    if !hello.0.is_empty() {
        return Err(ClientHelloError::Malformed);
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let content = extensions.vector(2)?;
        if kind == usize::from(SERVER_NAME) && found.replace(content).is_some() {
            return Err(ClientHelloError::Malformed);
        }
    }
    found.map_or(Ok(ClientHello::Unnamed), name_in)
}

/// The single name of the extension. Lists of several names or other types are not used in practice.
fn name_in(content: &[u8]) -> Result<ClientHello, ClientHelloError> {
    let mut outer = Reader(content);
    let mut list = Reader(outer.vector(2)?);
    let kind = list.number(1)?;
    let name = list.vector(2)?;
    if !outer.0.is_empty() || !list.0.is_empty() || kind != usize::from(HOST_NAME) {
        return Err(ClientHelloError::Malformed);
    }
    let text = std::str::from_utf8(name).map_err(|_| ClientHelloError::Malformed)?;
    // An address is not allowed here and counts as no name.
    Ok(Name::parse(text).map_or(ClientHello::Unnamed, ClientHello::Named))
}

/// Reads from the front of a slice.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], ClientHelloError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(ClientHelloError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A big-endian number of `width` bytes.
    fn number(&mut self, width: usize) -> Result<usize, ClientHelloError> {
        Ok(self.take(width)?.iter().fold(0, |sum, &byte| (sum << 8) | usize::from(byte)))
    }

    /// Bytes preceded by their length, which has `width` bytes.
    fn vector(&mut self, width: usize) -> Result<&'b [u8], ClientHelloError> {
        let length = self.number(width)?;
        self.take(length)
    }
}

#[cfg(test)]
#[path = "client_hello_tests.rs"]
pub(crate) mod tests;
