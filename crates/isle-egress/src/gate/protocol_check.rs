//! The first bytes of a connection, checked before dialing against the protocol of the grant: a TLS
//! ClientHello or the head of an HTTP request.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use crate::http::body_length::RequestRest;
use crate::http::request_head::{Head, HeadError, HeadResult, check_head, looks_like_request};
use crate::http::strict_head::{self, head_length};
use crate::policy::denial::{Denial, Reason};
use crate::policy::grant::Protocol;
use crate::policy::host::{Host, Target};
use crate::tls::client_hello;
use crate::tls::client_hello::{ClientHello, ClientHelloError, ClientHelloReader};

/// Timeout of the first bytes where they are checked.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a denied connection is read, to report the denial in HTTP if the program uses it.
const SNIFF_TIMEOUT: Duration = Duration::from_millis(300);

/// A connection whose first bytes do not fit the grant.
pub(crate) struct Rejected {
    pub(crate) denial: Denial,
    /// Whether the program uses HTTP, so that the denial can be reported in HTTP.
    pub(crate) in_http: bool,
}

impl Rejected {
    pub(crate) fn silent(denial: Denial) -> Self {
        Self { denial, in_http: false }
    }
}

/// What is sent to the server in place of the bytes read.
#[derive(Default)]
pub(crate) struct FirstBytes {
    pub(crate) bytes: Vec<u8>,
    /// The request, if the protocol is HTTP.
    pub(crate) request: Option<PlainRequest>,
    /// What else may be sent.
    pub(crate) rest: RequestRest,
}

/// An unencrypted HTTP request.
pub(crate) struct PlainRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// A header that makes some servers use another method or path.
    pub(crate) override_header: Option<String>,
    /// The length of its head.
    pub(crate) head: usize,
}

/// Whether a program uses HTTP, judged by its first bytes.
pub(crate) async fn sends_http<S: AsyncRead + Unpin>(inside: &mut S) -> bool {
    let mut received = [0; 64];
    let read = tokio::time::timeout(SNIFF_TIMEOUT, inside.read(&mut received)).await;
    matches!(read, Ok(Ok(count)) if looks_like_request(&received[..count]))
}

/// Reads the first bytes of a program and checks them against the protocol of the grant; returns what is
/// sent in their place.
pub(crate) async fn check_first_bytes<S>(
    target: &Target,
    protocol: Protocol,
    inside: &mut S,
) -> Result<FirstBytes, Rejected>
where
    S: AsyncRead + Unpin,
{
    let longest = match protocol {
        Protocol::Tcp => return Ok(FirstBytes::default()),
        Protocol::Tls => 2 * client_hello::LONGEST,
        Protocol::Http => strict_head::LONGEST,
    };
    let timeout_reason = match protocol {
        Protocol::Tcp | Protocol::Tls => Reason::NotTls,
        Protocol::Http => Reason::NotHttp,
    };
    let deadline = Instant::now() + FIRST_BYTES_TIMEOUT;
    let mut received = Vec::new();
    let mut hello = ClientHelloReader::default();
    let mut request = None;
    let mut rest = RequestRest::default();
    let mut buffer = vec![0; 4096];
    loop {
        let read = tokio::time::timeout_at(deadline, inside.read(&mut buffer)).await;
        let count = match read {
            Ok(Ok(count)) if count > 0 && received.len() + count <= longest => count,
            _ => {
                return Err(Rejected::silent(
                    Denial::of(target, timeout_reason).detail("the connection was closed or timed out"),
                ));
            }
        };
        let before = received.len();
        received.extend_from_slice(&buffer[..count]);
        // Only new bytes can complete a head; parsing all of it for every byte would be quadratic.
        if protocol == Protocol::Http && before > BEGINNING && !has_end(&received[before - 3..]) {
            continue;
        }
        let judged = match protocol {
            Protocol::Tcp => Ok(true),
            Protocol::Tls => judge_tls(hello.read(&received), target),
            Protocol::Http => match check_head(&received, target) {
                Ok(HeadResult::Partial) => Ok(false),
                Ok(HeadResult::Whole(head)) => {
                    let length = head.rewritten.len();
                    rest = RequestRest::from(head.body);
                    let begun = rest.take(&received[head.length..]);
                    received.truncate(head.length + begun.as_ref().copied().unwrap_or(0));
                    received.splice(..head.length, head.rewritten);
                    let Head { method, path, override_header, .. } = head;
                    request = Some(PlainRequest { method, path, override_header, head: length });
                    begun.map(|_| true).map_err(|error| {
                        Denial::of(target, Reason::AmbiguousRequest).detail(error.to_string())
                    })
                }
                Err(HeadError::NotHttp) => Err(Denial::of(target, Reason::NotHttp)),
                Err(error @ HeadError::WrongHost) => {
                    Err(Denial::of(target, Reason::WrongHostHeader).detail(error.to_string()))
                }
                Err(error @ HeadError::Ambiguous(_)) => {
                    Err(Denial::of(target, Reason::AmbiguousRequest).detail(error.to_string()))
                }
            },
        };
        match judged {
            Ok(true) => return Ok(FirstBytes { bytes: received, request, rest }),
            Ok(false) => {}
            Err(denial) => return Err(Rejected { denial, in_http: looks_like_request(&received) }),
        }
    }
}

/// After so many bytes the beginning of a head was checked.
const BEGINNING: usize = 8;

fn has_end(bytes: &[u8]) -> bool {
    head_length(bytes).is_some()
}

fn judge_tls(read: Result<ClientHello, ClientHelloError>, target: &Target) -> Result<bool, Denial> {
    match read {
        Ok(ClientHello::Partial) => Ok(false),
        Ok(ClientHello::Named(name)) if Host::Name(name.clone()) == target.host => Ok(true),
        Ok(ClientHello::Named(name)) => {
            Err(Denial::of(target, Reason::WrongServerName).detail(name.to_string()))
        }
        Ok(ClientHello::Unnamed) => Err(Denial::of(target, Reason::WrongServerName).detail("none")),
        Err(ClientHelloError::NotTls) => Err(Denial::of(target, Reason::NotTls)),
        Err(error @ ClientHelloError::Malformed) => {
            Err(Denial::of(target, Reason::NotTls).detail(error.to_string()))
        }
    }
}
