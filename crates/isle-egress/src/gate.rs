//! The gate of one sandbox: its grants, its counts, and every connection it has open. Changing the
//! grants is felt by open connections at once.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::account::{Count, Fate, Net, Tally};
use crate::denial::{Denial, Reason};
use crate::dial::{Undialed, dial};
use crate::grant::{Grant, GrantId, Protocol};
use crate::host::{Host, HostError, Name, Target};
use crate::http::{HeadError, HeadResult, check_head, looks_like_request};
use crate::policy::{Granted, Policy};
use crate::relay::{Moved, Stopped, relay};
use crate::resolve::Resolver;
use crate::tls::{Hello, HelloError, server_name};
use crate::{http, tls};

/// Connections one sandbox may have open.
const MOST_OPEN: usize = 1024;
/// How long a program may take to say its first words where they are checked.
const FIRST_WORDS: Duration = Duration::from_secs(20);

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As connections end.
    Closed,
    /// It was denied, or cut later.
    Denied(Denial),
    /// It was granted, and the other side could not be reached or went away.
    Failed(String),
}

/// An end, and what is still to be said to the program.
struct Ended {
    outcome: Outcome,
    last_word: Option<String>,
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, last_word: None }
    }
}

/// The gate of one sandbox.
#[derive(Debug)]
pub struct Gate {
    resolver: Arc<Resolver>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    policy: Policy,
    tallies: HashMap<GrantId, Arc<Tally>>,
    last_id: GrantId,
    open: usize,
    net: Net,
}

impl Gate {
    /// A gate through which nothing goes.
    #[must_use]
    pub fn new(resolver: Arc<Resolver>) -> Self {
        Self { resolver, state: Mutex::default(), changed: watch::Sender::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a grant; it holds at once.
    pub fn grant(&self, grant: Grant) -> GrantId {
        let mut state = self.state();
        state.last_id += 1;
        let id = state.last_id;
        let tally = Tally::new(grant.limits.total_bytes, grant.limits.bytes_per_second);
        state.tallies.insert(id, Arc::new(tally));
        state.policy.add(id, grant, Instant::now());
        drop(state);
        self.changed.send_replace(());
        id
    }

    /// Takes a grant back; what only it allowed is cut. Says whether there was such a grant.
    pub fn revoke(&self, id: GrantId) -> bool {
        let mut state = self.state();
        let was_there = state.policy.remove(id);
        state.tallies.remove(&id);
        drop(state);
        self.changed.send_replace(());
        was_there
    }

    /// The grants in force: what they say, what was used, how long they still hold.
    #[must_use]
    pub fn grants(&self) -> Vec<(GrantId, Grant, Count, Option<Duration>)> {
        let now = Instant::now();
        let mut state = self.state();
        state.policy.sweep(now);
        let one = |held: &crate::policy::Held| {
            let count = state.tallies.get(&held.id).map(|tally| tally.count()).unwrap_or_default();
            (held.id, held.grant.clone(), count, held.until.map(|until| until.saturating_duration_since(now)))
        };
        state.policy.held().iter().map(one).collect()
    }

    /// Whether nothing at all is granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state().policy.held().is_empty()
    }

    /// The log and the counts.
    #[must_use]
    pub fn net(&self) -> Net {
        self.state().net.clone()
    }

    /// The sequence of the newest entry of the log.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.state().net.sequence
    }

    /// The different denials after an entry of the log.
    #[must_use]
    pub fn denials_after(&self, sequence: u64) -> Vec<Denial> {
        self.state().net.denials_after(sequence)
    }

    /// Resolves when the grants change, from now on.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn note(&self, target: String, grant: Option<GrantId>, took: Duration, fate: Fate) {
        self.state().net.add(target, grant, took, fate);
    }

    /// A program of the sandbox looks up a name: the ports granted for it, or a denial.
    pub fn look_up(&self, name: &str) -> Result<(Name, Vec<u16>), Denial> {
        let denial = match Name::parse(name) {
            Ok(name) => {
                let ports = self.state().policy.ports_of(&name, Instant::now());
                if !ports.is_empty() {
                    return Ok((name, ports));
                }
                Denial::new(&name, Reason::NotGranted)
            }
            Err(error) => Denial::new(name, Reason::Malformed).detail(error.to_string()),
        };
        self.note(denial.target.clone(), None, Duration::ZERO, Fate::Denied(denial.clone()));
        Err(denial)
    }

    /// A program of the sandbox connects: `inside` is its stream. Everything is decided here, whatever
    /// was decided when the name was looked up. A denial is told in HTTP to those who speak it; others
    /// find their connection reset when the caller drops the stream.
    pub async fn serve<S>(&self, host: &str, port: u16, inside: &mut S) -> Outcome
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let began = Instant::now();
        let target = match target(host, port) {
            Ok(target) => target,
            Err(error) => {
                let denial =
                    Denial::new(format!("{host}:{port}"), Reason::Malformed).detail(error.to_string());
                self.note(denial.target.clone(), None, began.elapsed(), Fate::Denied(denial.clone()));
                return Outcome::Denied(denial);
            }
        };
        let mut moved = Moved::default();
        let mut used = None;
        let Ended { outcome, last_word } = self.conduct(&target, inside, &mut moved, &mut used).await;
        let fate = match &outcome {
            Outcome::Closed => Fate::Closed { sent: moved.sent, received: moved.received },
            Outcome::Denied(denial) => Fate::Denied(denial.clone()),
            Outcome::Failed(error) => Fate::Failed(error.clone()),
        };
        // On record before it is told: who hears of a denial finds it there.
        self.note(target.to_string(), used, began.elapsed(), fate);
        if let Some(text) = last_word {
            tell(inside, &text).await;
        }
        outcome
    }

    async fn conduct<S>(
        &self,
        target: &Target,
        inside: &mut S,
        moved: &mut Moved,
        used: &mut Option<GrantId>,
    ) -> Ended
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (granted, tally, _seat) = match self.admit(target) {
            Ok(admitted) => admitted,
            Err(denial) => return Outcome::Denied(denial).into(),
        };
        *used = Some(granted.id);
        let checked = tokio::select! {
            checked = check_first_words(target, granted.protocol, inside) => checked,
            () = self.ended(target, granted) => Err(Refused::silent(Denial::of(target, Reason::Revoked))),
        };
        let first = match checked {
            Ok(first) => first,
            Err(Refused { denial, in_http }) => {
                let last_word = in_http.then(|| denial.http_response());
                return Ended { outcome: Outcome::Denied(denial), last_word };
            }
        };
        let dialed = tokio::select! {
            dialed = self.dial(target) => dialed,
            () = self.ended(target, granted) => Err(Undialed::Denied(Denial::of(target, Reason::Revoked))),
        };
        let in_http = granted.protocol == Protocol::Http;
        let outside = match dialed {
            Ok(outside) => outside,
            Err(Undialed::Denied(denial)) => {
                let last_word = in_http.then(|| denial.http_response());
                return Ended { outcome: Outcome::Denied(denial), last_word };
            }
            Err(Undialed::Failed(error)) => {
                let last_word = in_http.then(|| bad_gateway(target, &error));
                return Ended { outcome: Outcome::Failed(error.to_string()), last_word };
            }
        };
        tally.opened();
        let ended = tokio::select! {
            ended = relay(inside, outside, &first, &tally, moved) => Some(ended),
            () = self.ended(target, granted) => None,
        };
        tally.closed();
        let outcome = match ended {
            Some(Ok(())) => Outcome::Closed,
            Some(Err(Stopped::Broken(error))) => Outcome::Failed(error.to_string()),
            Some(Err(Stopped::Exhausted)) => {
                self.state().policy.exhaust(granted.id);
                self.changed.send_replace(());
                Outcome::Denied(Denial::of(target, Reason::Exhausted))
            }
            None => Outcome::Denied(Denial::of(target, Reason::Revoked)),
        };
        outcome.into()
    }

    /// Decides, and takes one of the connections a sandbox may have.
    fn admit(&self, target: &Target) -> Result<(Granted, Arc<Tally>, Seat<'_>), Denial> {
        let mut state = self.state();
        let granted = state.policy.decide(target, Instant::now())?;
        if state.open >= MOST_OPEN {
            return Err(Denial::of(target, Reason::TooMany));
        }
        let tally = state.tallies.get(&granted.id).map(Arc::clone);
        let tally = tally.ok_or_else(|| Denial::of(target, Reason::NotGranted))?;
        state.open += 1;
        Ok((granted, tally, Seat(self)))
    }

    async fn dial(&self, target: &Target) -> Result<TcpStream, Undialed> {
        let opened = |address| self.state().policy.opens_address(address, target.port, Instant::now());
        dial(target, &self.resolver, opened).await
    }

    /// Resolves when a target that was granted is so no longer, or only for something else.
    async fn ended(&self, target: &Target, granted: Granted) {
        let mut changes = self.changed.subscribe();
        loop {
            let now = Instant::now();
            let (still, next) = {
                let state = self.state();
                let still = state.policy.decide(target, now);
                (still, state.policy.next_expiry(now))
            };
            let holds = still.is_ok_and(|now_granted| {
                now_granted.protocol == granted.protocol || now_granted.protocol == Protocol::Tcp
            });
            if !holds {
                return;
            }
            let expiry = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = expiry => {}
            }
        }
    }
}

/// One of the connections a sandbox may have open.
struct Seat<'g>(&'g Gate);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.state().open -= 1;
    }
}

fn target(host: &str, port: u16) -> Result<Target, HostError> {
    if port == 0 {
        return Err(HostError::Port);
    }
    Ok(Target { host: Host::parse(host)?, port })
}

/// A connection whose first words are not what was granted.
struct Refused {
    denial: Denial,
    /// Whether an answer in HTTP is understood.
    in_http: bool,
}

impl Refused {
    fn silent(denial: Denial) -> Self {
        Self { denial, in_http: false }
    }
}

/// Hears the first words of a program, where the grant says what they have to be; returns what goes
/// out in their place.
async fn check_first_words<S>(target: &Target, protocol: Protocol, inside: &mut S) -> Result<Vec<u8>, Refused>
where
    S: AsyncRead + Unpin,
{
    let longest = match protocol {
        Protocol::Tcp => return Ok(Vec::new()),
        Protocol::Tls => 2 * tls::LONGEST,
        Protocol::Http => http::LONGEST,
    };
    let silence = match protocol {
        Protocol::Tcp | Protocol::Tls => Reason::NotTls,
        Protocol::Http => Reason::NotHttp,
    };
    let deadline = Instant::now() + FIRST_WORDS;
    let mut heard = Vec::new();
    let mut buffer = vec![0; 4096];
    loop {
        let read = tokio::time::timeout_at(deadline, inside.read(&mut buffer)).await;
        let count = match read {
            Ok(Ok(count)) if count > 0 && heard.len() + count <= longest => count,
            _ => return Err(Refused::silent(Denial::of(target, silence).detail("it ended or was too slow"))),
        };
        heard.extend_from_slice(&buffer[..count]);
        let judged = match protocol {
            Protocol::Tcp => Ok(true),
            Protocol::Tls => judge_tls(&heard, target),
            Protocol::Http => match check_head(&heard, target) {
                Ok(HeadResult::Partial) => Ok(false),
                Ok(HeadResult::Whole(head)) => {
                    heard.splice(..head.length, head.rewritten);
                    Ok(true)
                }
                Err(HeadError::NotHttp) => Err(Denial::of(target, Reason::NotHttp)),
                Err(error @ (HeadError::WrongHost | HeadError::Ambiguous)) => {
                    Err(Denial::of(target, Reason::WrongHostHeader).detail(error.to_string()))
                }
            },
        };
        match judged {
            Ok(true) => return Ok(heard),
            Ok(false) => {}
            Err(denial) => return Err(Refused { denial, in_http: looks_like_request(&heard) }),
        }
    }
}

fn judge_tls(heard: &[u8], target: &Target) -> Result<bool, Denial> {
    match server_name(heard) {
        Ok(Hello::Partial) => Ok(false),
        Ok(Hello::Named(name)) if Host::Name(name.clone()) == target.host => Ok(true),
        Ok(Hello::Named(name)) => Err(Denial::of(target, Reason::WrongServerName).detail(name.to_string())),
        Ok(Hello::Unnamed) => Err(Denial::of(target, Reason::WrongServerName).detail("none")),
        Err(error @ (HelloError::NotTls | HelloError::Malformed)) => {
            Err(Denial::of(target, Reason::NotTls).detail(error.to_string()))
        }
    }
}

/// Says a last word; whether it is heard changes nothing.
async fn tell<S: AsyncRead + AsyncWrite + Unpin>(inside: &mut S, text: &str) {
    let say = async {
        inside.write_all(text.as_bytes()).await?;
        inside.flush().await?;
        inside.shutdown().await?;
        // Until the other side has read it: what it still sends is thrown away.
        let mut rest = vec![0; 4096];
        while inside.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(5), say).await.ok();
}

fn bad_gateway(target: &Target, error: &io::Error) -> String {
    let body = format!("{target} is granted to this sandbox and could not be reached: {error}\n");
    format!(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
