//! The proxy for sandboxes whose programs cannot resolve names: HTTP (`CONNECT`, and requests with an
//! absolute URI) and SOCKS 5, distinguished by the first byte. It reads the target and replies with the
//! result. Grants, dialing and checks are those of the gate, as for every other connection.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::gate::protocol_check::check_first_bytes;
use crate::gate::{Gate, Outcome, bad_gateway};
use crate::http::strict_head::{self, head_length, is_token};
use crate::policy::denial::{Denial, Reason, printable};
use crate::policy::grant::{Protocol, RunKey};
use crate::policy::host::{HostError, Target};
use crate::relay::sandbox_stream::SandboxStream;

/// Timeout of the proxy request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// The default port of a request.
const HTTP_PORT: u16 = 80;

const SOCKS: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;

/// The proxy protocol of a connection, which determines the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyProtocol {
    /// An HTTP request with an absolute URI: the response is that of the server.
    Request,
    /// HTTP `CONNECT`.
    Connect,
    /// SOCKS 5.
    Socks,
}

/// Reply codes of SOCKS 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum SocksReply {
    Done = 0,
    NotAllowed = 2,
    Unreachable = 4,
    Rejected = 5,
    NoSuchCommand = 7,
    NoSuchAddress = 8,
}

impl SocksReply {
    /// With an unspecified bound address.
    fn bytes(self) -> Vec<u8> {
        vec![SOCKS, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

impl ProxyProtocol {
    /// The reply when a granted target could not be reached.
    pub(crate) fn unreached(self, target: impl fmt::Display, error: &io::Error) -> Vec<u8> {
        match self {
            Self::Request | Self::Connect => bad_gateway(target, error).into_bytes(),
            Self::Socks if error.kind() == io::ErrorKind::ConnectionRefused => SocksReply::Rejected.bytes(),
            Self::Socks => SocksReply::Unreachable.bytes(),
        }
    }

    fn denied(self, denial: &Denial) -> Vec<u8> {
        match self {
            Self::Request | Self::Connect => denial.http_response().into_bytes(),
            Self::Socks if denial.reason == Reason::Unresolvable => SocksReply::Unreachable.bytes(),
            Self::Socks => SocksReply::NotAllowed.bytes(),
        }
    }
}

/// A proxy request, as far as it was read.
#[derive(Debug, PartialEq, Eq)]
enum ProxyRequest {
    /// Incomplete.
    Partial,
    /// Target, protocol, and number of bytes consumed.
    Whole(Target, ProxyProtocol, usize),
}

/// Why the target is not known.
#[derive(Debug, PartialEq, Eq)]
enum ProxyError {
    /// The host is not valid.
    Host(ProxyProtocol, String, HostError),
    /// Not a valid request; this is the reply.
    Reply(Vec<u8>),
    /// The connection was closed.
    Closed,
}

impl ProxyError {
    fn host(front: ProxyProtocol, text: &str) -> impl FnOnce(HostError) -> Self {
        let text = printable(text);
        move |error| Self::Host(front, text, error)
    }
}

impl Gate {
    /// Reads the target of a proxy connection. A malformed request is answered here; a host that is not valid
    /// is a denial.
    pub async fn read_proxy_request(&self, inside: &mut SandboxStream) -> Result<Target, Option<Denial>> {
        self.read_proxy_request_within(REQUEST_TIMEOUT, inside).await
    }

    async fn read_proxy_request_within(
        &self,
        patience: Duration,
        inside: &mut SandboxStream,
    ) -> Result<Target, Option<Denial>> {
        let received = tokio::time::timeout(patience, read_target(inside)).await;
        match received
            .unwrap_or_else(|_| Err(ProxyError::Reply(plain("408 Request Timeout", "the request timed out"))))
        {
            Ok(target) => Ok(target),
            Err(ProxyError::Host(front, text, error)) => {
                let denial = self.deny_host(text, error, inside.by.as_ref());
                inside.send_final(&front.denied(&denial)).await;
                Err(Some(denial))
            }
            Err(ProxyError::Reply(words)) => {
                inside.send_final(&words).await;
                Err(None)
            }
            Err(ProxyError::Closed) => Err(None),
        }
    }

    /// Logs that a program tried to connect without the proxy.
    pub fn deny_direct_connection(&self, address: &str, port: u16, by: Option<RunKey>) -> Denial {
        let target = match address.parse() {
            Ok(address) => SocketAddr::new(address, port).to_string(),
            Err(_) => format!("{address}:{port}"),
        };
        self.deny(Denial::new(target, Reason::PastProxy).by(by))
    }
}

impl SandboxStream {
    /// Confirms the connection to a proxy client that waits for it.
    pub(crate) async fn confirm_connected(&mut self) -> io::Result<()> {
        match self.front.take() {
            Some(ProxyProtocol::Connect) => {
                self.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await
            }
            Some(ProxyProtocol::Socks) => self.write_all(&SocksReply::Done.bytes()).await,
            Some(ProxyProtocol::Request) | None => Ok(()),
        }
    }

    /// The same for a caller that relays bytes unchanged: a request with an absolute URI is rewritten for the
    /// server. Errors are already reported to the program.
    pub async fn confirm_forwarded(&mut self, target: &Target) -> io::Result<()> {
        if self.front != Some(ProxyProtocol::Request) {
            return self.confirm_connected().await;
        }
        self.front = None;
        match check_first_bytes(target, Protocol::Http, self).await {
            Ok(first) => {
                self.read_again(first.bytes);
                Ok(())
            }
            Err(refused) => {
                if refused.in_http {
                    self.send_final(refused.denial.http_response().as_bytes()).await;
                }
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// Reports the outcome to a proxy client that still waits for its connection.
    pub async fn reply_outcome(&mut self, outcome: &Outcome) {
        let words = match (self.front.take(), outcome) {
            (None, _) | (_, Outcome::Closed) => return,
            (Some(front), Outcome::Denied(denial)) => front.denied(denial),
            (Some(front), Outcome::Failed(why)) => {
                front.unreached("the host", &io::Error::other(why.clone()))
            }
        };
        self.send_final(&words).await;
    }
}

async fn read_target(inside: &mut SandboxStream) -> Result<Target, ProxyError> {
    let mut received = Vec::new();
    read_more(inside, &mut received).await?;
    if received.first() == Some(&SOCKS) {
        let used = loop {
            match socks_methods(&received)? {
                Some(used) => break used,
                None => read_more(inside, &mut received).await?,
            }
        };
        received.drain(..used);
        inside.write_all(&[SOCKS, NO_AUTHENTICATION]).await.map_err(|_| ProxyError::Closed)?;
        read_until_parsed(inside, received, Unit::Bytes, socks_request).await
    } else {
        read_until_parsed(inside, received, Unit::Lines, http_request).await
    }
}

/// The unit in which a request is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Lines of text: nothing can be parsed before one is complete.
    Lines,
    /// Single bytes.
    Bytes,
}

/// Reads until the target is known; the remaining bytes are read again.
async fn read_until_parsed(
    inside: &mut SandboxStream,
    mut received: Vec<u8>,
    speech: Unit,
    parse: fn(&[u8]) -> Result<ProxyRequest, ProxyError>,
) -> Result<Target, ProxyError> {
    loop {
        match parse(&received)? {
            ProxyRequest::Partial => loop {
                let before = received.len();
                read_more(inside, &mut received).await?;
                // A line is parsed when it is complete; parsing it for every byte would be quadratic.
                let is_text = |&byte: &u8| byte.is_ascii_graphic() || byte == b' ';
                if speech == Unit::Bytes
                    || !received[before..].iter().all(is_text)
                    || received.len() > strict_head::LONGEST
                {
                    break;
                }
            },
            ProxyRequest::Whole(target, front, used) => {
                received.drain(..used);
                inside.read_again(received);
                inside.front = Some(front);
                return Ok(target);
            }
        }
    }
}

async fn read_more(inside: &mut SandboxStream, received: &mut Vec<u8>) -> Result<(), ProxyError> {
    let mut buffer = [0; 4096];
    match inside.read(&mut buffer).await {
        Ok(count) if count > 0 => {
            received.extend_from_slice(&buffer[..count]);
            Ok(())
        }
        Ok(_) | Err(_) => Err(ProxyError::Closed),
    }
}

/// The authentication methods that a program offers. Only "no authentication" is accepted.
fn socks_methods(bytes: &[u8]) -> Result<Option<usize>, ProxyError> {
    let [SOCKS, count, rest @ ..] = bytes else {
        return if bytes.len() < 2 { Ok(None) } else { Err(ProxyError::Closed) };
    };
    let count = usize::from(*count);
    let Some(methods) = rest.get(..count) else { return Ok(None) };
    if methods.contains(&NO_AUTHENTICATION) {
        Ok(Some(2 + count))
    } else {
        Err(ProxyError::Reply(vec![SOCKS, NO_ACCEPTABLE_METHOD]))
    }
}

/// Parses a SOCKS request.
fn socks_request(bytes: &[u8]) -> Result<ProxyRequest, ProxyError> {
    let [version, command, _, kind, rest @ ..] = bytes else { return Ok(ProxyRequest::Partial) };
    if *version != SOCKS {
        return Err(ProxyError::Closed);
    }
    if *command != 1 {
        return Err(ProxyError::Reply(SocksReply::NoSuchCommand.bytes()));
    }
    let (host, rest) = match kind {
        1 => match rest.split_first_chunk::<4>() {
            Some((address, rest)) => (Ipv4Addr::from(*address).to_string(), rest),
            None => return Ok(ProxyRequest::Partial),
        },
        3 => match rest.split_first() {
            Some((length, rest)) if rest.len() >= usize::from(*length) => {
                let (name, rest) = rest.split_at(usize::from(*length));
                (String::from_utf8_lossy(name).into_owned(), rest)
            }
            _ => return Ok(ProxyRequest::Partial),
        },
        4 => match rest.split_first_chunk::<16>() {
            Some((address, rest)) => (format!("[{}]", Ipv6Addr::from(*address)), rest),
            None => return Ok(ProxyRequest::Partial),
        },
        _ => return Err(ProxyError::Reply(SocksReply::NoSuchAddress.bytes())),
    };
    let Some((port, rest)) = rest.split_first_chunk::<2>() else { return Ok(ProxyRequest::Partial) };
    let text = format!("{host}:{}", u16::from_be_bytes(*port));
    // A name with a colon would be parsed differently together with its port.
    let odd = *kind == 3 && host.contains([':', '[', ']']);
    let target = if odd { Err(HostError::Character) } else { Target::parse(&text, None) };
    let target = target.map_err(ProxyError::host(ProxyProtocol::Socks, &text))?;
    Ok(ProxyRequest::Whole(target, ProxyProtocol::Socks, bytes.len() - rest.len()))
}

/// Parses a request to an HTTP proxy. A request with an absolute URI is not consumed: it is checked again as
/// every request is.
fn http_request(bytes: &[u8]) -> Result<ProxyRequest, ProxyError> {
    let bad_request = |what: &str| ProxyError::Reply(plain("400 Bad Request", what));
    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
        let begins_well = bytes.iter().all(|byte| byte.is_ascii_graphic() || b" \r".contains(byte));
        return match (begins_well, bytes.len() <= strict_head::LONGEST) {
            (true, true) => Ok(ProxyRequest::Partial),
            (true, false) => Err(bad_request("the request is too long")),
            // Not HTTP, so an HTTP response would be useless.
            (false, _) => Err(ProxyError::Closed),
        };
    };
    let line = bytes[..end].strip_suffix(b"\r").and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    let [method, what, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
        return Err(bad_request("this is a proxy for HTTP/1.1 and SOCKS 5"));
    };
    if method.is_empty() || !method.bytes().all(is_token) {
        return Err(bad_request("the method is not valid"));
    }
    if method == "CONNECT" {
        let Some(used) = head_length(bytes) else {
            let fits = bytes.len() <= strict_head::LONGEST;
            return if fits {
                Ok(ProxyRequest::Partial)
            } else {
                Err(bad_request("the request is too long"))
            };
        };
        let target = Target::parse(what, None).map_err(ProxyError::host(ProxyProtocol::Connect, what))?;
        return Ok(ProxyRequest::Whole(target, ProxyProtocol::Connect, used));
    }
    let Some(rest) = what.strip_prefix("http://") else {
        return Err(bad_request(
            "use an absolute URI, such as `GET http://example.com/`, or CONNECT for anything but plain HTTP",
        ));
    };
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    let target = Target::parse(authority, Some(HTTP_PORT))
        .map_err(ProxyError::host(ProxyProtocol::Request, authority))?;
    Ok(ProxyRequest::Whole(target, ProxyProtocol::Request, 0))
}

/// An error response of the proxy.
fn plain(status: &str, what: &str) -> Vec<u8> {
    let body = format!("Bad request to the sandbox's proxy: {what}.\n");
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Parses the first bytes of a proxy connection: target and number of bytes consumed. For fuzzing.
#[must_use]
pub fn parse_proxy_request(bytes: &[u8]) -> Option<(Target, usize)> {
    let (skipped, said) = match bytes.first() {
        Some(&SOCKS) => {
            let used = socks_methods(bytes).ok()??;
            (used, socks_request(&bytes[used..]))
        }
        _ => (0, http_request(bytes)),
    };
    match said.ok()? {
        ProxyRequest::Partial => None,
        ProxyRequest::Whole(target, _, used) => Some((target, skipped + used)),
    }
}

#[cfg(test)]
mod tests;
