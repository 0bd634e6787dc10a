//! The proxy of sandboxes whose programs have no network to look names up in: HTTP (`CONNECT`, and requests
//! with a whole address) and SOCKS 5, told apart by their first byte. It hears where a program wants to go
//! and says how that went. What is granted, dialed and checked is the gate's affair, as on every other way
//! to it.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::denial::{Denial, Reason, printable};
use crate::first::check_first_words;
use crate::gate::{Gate, Outcome, bad_gateway};
use crate::grant::Protocol;
use crate::host::{HostError, Target};
use crate::http::{self, head_length, is_token};
use crate::inside::Inside;

/// How long a program may take to say where it wants to go.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where a request goes that names no port.
const HTTP_PORT: u16 = 80;

const SOCKS: u8 = 5;
const NO_SECRET: u8 = 0;
const NO_METHOD: u8 = 0xff;

/// How a program asked for a way, which says how it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// By a request in HTTP that names its host: the answer is that of the host.
    Request,
    /// By `CONNECT`.
    Connect,
    /// By SOCKS.
    Socks,
}

/// What SOCKS calls the ways in which it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Reply {
    Done = 0,
    NotAllowed = 2,
    Unreachable = 4,
    Refused = 5,
    NoSuchCommand = 7,
    NoSuchAddress = 8,
}

impl Reply {
    /// With the address that nobody asks for.
    fn bytes(self) -> Vec<u8> {
        vec![SOCKS, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

impl Front {
    /// Said when somebody who is granted could not be reached.
    pub(crate) fn unreached(self, target: impl fmt::Display, error: &io::Error) -> Vec<u8> {
        match self {
            Self::Request | Self::Connect => bad_gateway(target, error).into_bytes(),
            Self::Socks if error.kind() == io::ErrorKind::ConnectionRefused => Reply::Refused.bytes(),
            Self::Socks => Reply::Unreachable.bytes(),
        }
    }

    fn denied(self, denial: &Denial) -> Vec<u8> {
        match self {
            Self::Request | Self::Connect => denial.http_response().into_bytes(),
            Self::Socks if denial.reason == Reason::Unresolvable => Reply::Unreachable.bytes(),
            Self::Socks => Reply::NotAllowed.bytes(),
        }
    }
}

/// What a program said of where it wants to go.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Not all of it yet.
    Partial,
    /// Where to, how it asked, and how many bytes are used up by that.
    Whole(Target, Front, usize),
}

/// Why nobody knows where a program wants to go.
#[derive(Debug, PartialEq, Eq)]
enum Misheard {
    /// It named something that is no host.
    Host(Front, String, HostError),
    /// It said something else; this is the answer.
    Speech(Vec<u8>),
    /// It left, or took too long.
    Silence,
}

impl Misheard {
    fn host(front: Front, text: &str) -> impl FnOnce(HostError) -> Self {
        let text = printable(text);
        move |error| Self::Host(front, text, error)
    }
}

impl Gate {
    /// A program of the sandbox speaks to its proxy: where it wants to go. What cannot be understood is
    /// answered here; where it names something that is no host, that is a denial.
    pub async fn hear(&self, inside: &mut Inside) -> Result<Target, Option<Denial>> {
        self.hear_within(PATIENCE, inside).await
    }

    async fn hear_within(&self, patience: Duration, inside: &mut Inside) -> Result<Target, Option<Denial>> {
        let heard = tokio::time::timeout(patience, hear(inside)).await;
        match heard
            .unwrap_or_else(|_| Err(Misheard::Speech(plain("408 Request Timeout", "it took too long"))))
        {
            Ok(target) => Ok(target),
            Err(Misheard::Host(front, text, error)) => {
                let denial = self.deny_host(text, error);
                inside.say_last(&front.denied(&denial)).await;
                Err(Some(denial))
            }
            Err(Misheard::Speech(words)) => {
                inside.say_last(&words).await;
                Err(None)
            }
            Err(Misheard::Silence) => Err(None),
        }
    }

    /// A program was refused a connection past the proxy.
    pub fn deny_past_proxy(&self, address: &str, port: u16) -> Denial {
        let target = match address.parse() {
            Ok(address) => SocketAddr::new(address, port).to_string(),
            Err(_) => format!("{address}:{port}"),
        };
        self.deny(Denial::new(target, Reason::PastProxy))
    }
}

impl Inside {
    /// Says that the way a program asked for is open, where it waits for that.
    pub(crate) async fn welcome(&mut self) -> io::Result<()> {
        match self.front.take() {
            Some(Front::Connect) => self.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
            Some(Front::Socks) => self.write_all(&Reply::Done.bytes()).await,
            Some(Front::Request) | None => Ok(()),
        }
    }

    /// The same for somebody who carries bytes as they are: a request made of the proxy becomes one that
    /// servers take. An error is told already.
    pub async fn open_way(&mut self, target: &Target) -> io::Result<()> {
        if self.front != Some(Front::Request) {
            return self.welcome().await;
        }
        self.front = None;
        match check_first_words(target, Protocol::Http, self).await {
            Ok(first) => {
                self.read_again(first.words);
                Ok(())
            }
            Err(refused) => {
                if refused.in_http {
                    self.say_last(refused.denial.http_response().as_bytes()).await;
                }
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// Says how it ended to a program that still waits for its way.
    pub async fn turn_away(&mut self, outcome: &Outcome) {
        let words = match (self.front.take(), outcome) {
            (None, _) | (_, Outcome::Closed) => return,
            (Some(front), Outcome::Denied(denial)) => front.denied(denial),
            (Some(front), Outcome::Failed(why)) => {
                front.unreached("the host", &io::Error::other(why.clone()))
            }
        };
        self.say_last(&words).await;
    }
}

async fn hear(inside: &mut Inside) -> Result<Target, Misheard> {
    let mut heard = Vec::new();
    more(inside, &mut heard).await?;
    if heard.first() == Some(&SOCKS) {
        let used = loop {
            match socks_methods(&heard)? {
                Some(used) => break used,
                None => more(inside, &mut heard).await?,
            }
        };
        heard.drain(..used);
        inside.write_all(&[SOCKS, NO_SECRET]).await.map_err(|_| Misheard::Silence)?;
        settle(inside, heard, socks_request).await
    } else {
        settle(inside, heard, http_request).await
    }
}

/// Hears on until it is known where to, and has the rest read again.
async fn settle(
    inside: &mut Inside,
    mut heard: Vec<u8>,
    understand: fn(&[u8]) -> Result<Said, Misheard>,
) -> Result<Target, Misheard> {
    loop {
        match understand(&heard)? {
            Said::Partial => more(inside, &mut heard).await?,
            Said::Whole(target, front, used) => {
                heard.drain(..used);
                inside.read_again(heard);
                inside.front = Some(front);
                return Ok(target);
            }
        }
    }
}

async fn more(inside: &mut Inside, heard: &mut Vec<u8>) -> Result<(), Misheard> {
    let mut buffer = [0; 4096];
    match inside.read(&mut buffer).await {
        Ok(count) if count > 0 => {
            heard.extend_from_slice(&buffer[..count]);
            Ok(())
        }
        Ok(_) | Err(_) => Err(Misheard::Silence),
    }
}

/// The ways of saying who one is that a program knows. Only the one that says nothing is taken.
fn socks_methods(bytes: &[u8]) -> Result<Option<usize>, Misheard> {
    let [SOCKS, count, rest @ ..] = bytes else {
        return if bytes.len() < 2 { Ok(None) } else { Err(Misheard::Silence) };
    };
    let count = usize::from(*count);
    let Some(methods) = rest.get(..count) else { return Ok(None) };
    if methods.contains(&NO_SECRET) {
        Ok(Some(2 + count))
    } else {
        Err(Misheard::Speech(vec![SOCKS, NO_METHOD]))
    }
}

/// What a program asks of SOCKS.
fn socks_request(bytes: &[u8]) -> Result<Said, Misheard> {
    let [version, command, _, kind, rest @ ..] = bytes else { return Ok(Said::Partial) };
    if *version != SOCKS {
        return Err(Misheard::Silence);
    }
    if *command != 1 {
        return Err(Misheard::Speech(Reply::NoSuchCommand.bytes()));
    }
    let (host, rest) = match kind {
        1 => match rest.split_first_chunk::<4>() {
            Some((address, rest)) => (Ipv4Addr::from(*address).to_string(), rest),
            None => return Ok(Said::Partial),
        },
        3 => match rest.split_first() {
            Some((length, rest)) if rest.len() >= usize::from(*length) => {
                let (name, rest) = rest.split_at(usize::from(*length));
                (String::from_utf8_lossy(name).into_owned(), rest)
            }
            _ => return Ok(Said::Partial),
        },
        4 => match rest.split_first_chunk::<16>() {
            Some((address, rest)) => (format!("[{}]", Ipv6Addr::from(*address)), rest),
            None => return Ok(Said::Partial),
        },
        _ => return Err(Misheard::Speech(Reply::NoSuchAddress.bytes())),
    };
    let Some((port, rest)) = rest.split_first_chunk::<2>() else { return Ok(Said::Partial) };
    let text = format!("{host}:{}", u16::from_be_bytes(*port));
    // A name with a colon in it would be read as something else together with its port.
    let odd = *kind == 3 && host.contains([':', '[', ']']);
    let target = if odd { Err(HostError::Character) } else { Target::parse(&text, None) };
    let target = target.map_err(Misheard::host(Front::Socks, &text))?;
    Ok(Said::Whole(target, Front::Socks, bytes.len() - rest.len()))
}

/// What a program asks of an HTTP proxy. Of a request with a whole address nothing is used up: it is looked
/// at again as every request is.
fn http_request(bytes: &[u8]) -> Result<Said, Misheard> {
    let refuse = |what: &str| Misheard::Speech(plain("400 Bad Request", what));
    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
        let begins_well = bytes.iter().all(|byte| byte.is_ascii_graphic() || b" \r".contains(byte));
        return match (begins_well, bytes.len() <= http::LONGEST) {
            (true, true) => Ok(Said::Partial),
            (true, false) => Err(refuse("the request is too long")),
            // Whatever it is, it is not HTTP, and no answer in HTTP is understood.
            (false, _) => Err(Misheard::Silence),
        };
    };
    let line = bytes[..end].strip_suffix(b"\r").and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    let [method, what, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
        return Err(refuse("this is a proxy for HTTP/1.1 and SOCKS 5"));
    };
    if method.is_empty() || !method.bytes().all(is_token) {
        return Err(refuse("the method is none"));
    }
    if method == "CONNECT" {
        let Some(used) = head_length(bytes) else {
            let fits = bytes.len() <= http::LONGEST;
            return if fits { Ok(Said::Partial) } else { Err(refuse("the request is too long")) };
        };
        let target = Target::parse(what, None).map_err(Misheard::host(Front::Connect, what))?;
        return Ok(Said::Whole(target, Front::Connect, used));
    }
    let Some(rest) = what.strip_prefix("http://") else {
        return Err(refuse(
            "a request to this proxy names its host, such as `GET http://example.com/`; for anything but plain HTTP use CONNECT",
        ));
    };
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    let target =
        Target::parse(authority, Some(HTTP_PORT)).map_err(Misheard::host(Front::Request, authority))?;
    Ok(Said::Whole(target, Front::Request, 0))
}

/// An answer of the proxy's own.
fn plain(status: &str, what: &str) -> Vec<u8> {
    let body = format!("The sandbox's proxy does not understand this: {what}.\n");
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// What the parsers make of the first bytes of a program: for tests that try any bytes. Says where to, and
/// how many bytes are used up.
#[must_use]
pub fn understood(bytes: &[u8]) -> Option<(Target, usize)> {
    let (skipped, said) = match bytes.first() {
        Some(&SOCKS) => {
            let used = socks_methods(bytes).ok()??;
            (used, socks_request(&bytes[used..]))
        }
        _ => (0, http_request(bytes)),
    };
    match said.ok()? {
        Said::Partial => None,
        Said::Whole(target, _, used) => Some((target, skipped + used)),
    }
}

#[cfg(test)]
#[path = "front_tests.rs"]
mod tests;
