//! The first words of a program on a connection, heard before anybody is dialed, where the grant says
//! what they have to be.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use crate::body::Follows;
use crate::denial::{Denial, Reason};
use crate::grant::Protocol;
use crate::host::{Host, Target};
use crate::http::{HeadError, HeadResult, check_head, head_length, looks_like_request};
use crate::tls::{Hello, HelloError, server_name};
use crate::{http, tls};

/// How long a program may take to say its first words where they are checked.
const FIRST_WORDS: Duration = Duration::from_secs(20);

/// How long one that is denied in any case is listened to, to be told in words it understands.
const GREETING: Duration = Duration::from_millis(300);

/// A connection whose first words are not what was granted.
pub(crate) struct Refused {
    pub(crate) denial: Denial,
    /// Whether an answer in HTTP is understood.
    pub(crate) in_http: bool,
}

impl Refused {
    pub(crate) fn silent(denial: Denial) -> Self {
        Self { denial, in_http: false }
    }
}

/// What goes out first in the place of what a program said.
#[derive(Default)]
pub(crate) struct First {
    pub(crate) words: Vec<u8>,
    /// What it asks for, where that was heard.
    pub(crate) asked: Option<Asked>,
    /// What else goes out.
    pub(crate) follows: Follows,
}

/// A request that is not encrypted.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    /// How long its head is.
    pub(crate) head: usize,
}

/// Whether a program speaks HTTP, by the first thing it says.
pub(crate) async fn speaks_http<S: AsyncRead + Unpin>(inside: &mut S) -> bool {
    let mut heard = [0; 64];
    let read = tokio::time::timeout(GREETING, inside.read(&mut heard)).await;
    matches!(read, Ok(Ok(count)) if looks_like_request(&heard[..count]))
}

/// Hears the first words of a program, where the grant says what they have to be; returns what goes
/// out in their place.
pub(crate) async fn check_first_words<S>(
    target: &Target,
    protocol: Protocol,
    inside: &mut S,
) -> Result<First, Refused>
where
    S: AsyncRead + Unpin,
{
    let longest = match protocol {
        Protocol::Tcp => return Ok(First::default()),
        Protocol::Tls => 2 * tls::LONGEST,
        Protocol::Http => http::LONGEST,
    };
    let silence = match protocol {
        Protocol::Tcp | Protocol::Tls => Reason::NotTls,
        Protocol::Http => Reason::NotHttp,
    };
    let deadline = Instant::now() + FIRST_WORDS;
    let mut heard = Vec::new();
    let mut asked = None;
    let mut follows = Follows::default();
    let mut buffer = vec![0; 4096];
    loop {
        let read = tokio::time::timeout_at(deadline, inside.read(&mut buffer)).await;
        let count = match read {
            Ok(Ok(count)) if count > 0 && heard.len() + count <= longest => count,
            _ => return Err(Refused::silent(Denial::of(target, silence).detail("it ended or was too slow"))),
        };
        let before = heard.len();
        heard.extend_from_slice(&buffer[..count]);
        // Only what is new can bring the end of a head; looking at all of it for every byte would be dear.
        if protocol == Protocol::Http && before > BEGINNING && !has_end(&heard[before - 3..]) {
            continue;
        }
        let judged = match protocol {
            Protocol::Tcp => Ok(true),
            Protocol::Tls => judge_tls(&heard, target),
            Protocol::Http => match check_head(&heard, target) {
                Ok(HeadResult::Partial) => Ok(false),
                Ok(HeadResult::Whole(head)) => {
                    let length = head.rewritten.len();
                    follows = Follows::from(head.body);
                    let begun = follows.take(&heard[head.length..]);
                    heard.truncate(head.length + begun.as_ref().copied().unwrap_or(0));
                    heard.splice(..head.length, head.rewritten);
                    asked = Some(Asked { method: head.method, path: head.path, head: length });
                    begun.map(|_| true).map_err(|error| {
                        Denial::of(target, Reason::WrongHostHeader).detail(error.to_string())
                    })
                }
                Err(HeadError::NotHttp) => Err(Denial::of(target, Reason::NotHttp)),
                Err(error @ (HeadError::WrongHost | HeadError::Ambiguous)) => {
                    Err(Denial::of(target, Reason::WrongHostHeader).detail(error.to_string()))
                }
            },
        };
        match judged {
            Ok(true) => return Ok(First { words: heard, asked, follows }),
            Ok(false) => {}
            Err(denial) => return Err(Refused { denial, in_http: looks_like_request(&heard) }),
        }
    }
}

/// What begins a head was looked at by then.
const BEGINNING: usize = 8;

fn has_end(bytes: &[u8]) -> bool {
    head_length(bytes).is_some()
}

fn judge_tls(heard: &[u8], target: &Target) -> Result<bool, Denial> {
    match server_name(heard) {
        Ok(Hello::Partial) => Ok(false),
        Ok(Hello::Named(name)) if Host::Name(name.clone()) == target.host => Ok(true),
        Ok(Hello::Named(name)) => Err(Denial::of(target, Reason::WrongServerName).detail(name.to_string())),
        Ok(Hello::Unnamed) => Err(Denial::of(target, Reason::WrongServerName).detail("none")),
        Err(HelloError::NotTls) => Err(Denial::of(target, Reason::NotTls)),
        Err(error @ HelloError::Malformed) => {
            Err(Denial::of(target, Reason::NotTls).detail(error.to_string()))
        }
    }
}
