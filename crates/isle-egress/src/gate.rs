//! The gate of one sandbox: its grants, its counts, and every connection it has open. Changing the
//! grants is felt by open connections at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::account::{Count, Fate, Net, Tally};
use crate::ask::{Asker, permit};
use crate::authority::{Authority, AuthorityError};
use crate::denial::{Denial, Reason};
use crate::dial::{Dialed, Undialed, dial};
use crate::first::{Asked, First, Refused, check_first_words, speaks_http};
use crate::front::Front;
use crate::grant::{Grant, GrantId, Protocol};
use crate::host::{Host, HostError, Name, Target};
use crate::inside::Inside;
use crate::meter::Meter;
use crate::open;
use crate::outside::Outside;
use crate::policy::{Granted, Policy, RequestLine};
use crate::relay::{Moved, Stopped, relay};
use crate::resolve::{Resolver, Turns};
use crate::roots::Roots;
use crate::swap::{Swaps, placeholders_in, tell_strays};
use crate::totals::Totals;

/// Connections one sandbox may have open.
const MOST_OPEN: usize = 1024;

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
    last_word: Option<Vec<u8>>,
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
    turns: Turns,
    roots: Arc<Roots>,
    swaps: Option<Arc<dyn Swaps>>,
    authority: OnceLock<Arc<Authority>>,
    totals: Arc<Totals>,
    pub(crate) state: Arc<Mutex<State>>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) policy: Policy,
    tallies: HashMap<GrantId, Arc<Tally>>,
    last_id: GrantId,
    open: usize,
    net: Net,
    /// Wakes whoever waits for requests that were denied.
    denied: Arc<Notify>,
    /// Whom requests that are denied are put to.
    pub(crate) asker: Option<Asker>,
}

impl State {
    /// A grant is gone, and what was counted of it.
    pub(crate) fn forget(&mut self, id: GrantId) {
        self.tallies.remove(&id);
    }

    /// Writes down that a request inside a connection was denied.
    pub(crate) fn note_request(&mut self, denial: &Denial, took: Duration) {
        self.net.add(denial.target.clone(), None, took, Fate::Denied(denial.clone()));
        self.denied.notify_one();
    }
}

/// The state of a gate, for a moment.
pub(crate) fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    /// A gate through which nothing goes.
    #[must_use]
    pub fn new(resolver: Arc<Resolver>) -> Self {
        Self {
            resolver,
            turns: Turns::default(),
            roots: Arc::default(),
            swaps: None,
            authority: OnceLock::new(),
            totals: Arc::default(),
            state: Arc::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Believes these authorities where it opens encryption.
    #[must_use]
    pub fn with_roots(self, roots: Arc<Roots>) -> Self {
        Self { roots, ..self }
    }

    /// Puts secrets in the place of their placeholders, on the way to the secrets' own hosts.
    #[must_use]
    pub fn with_swaps(self, swaps: Arc<dyn Swaps>) -> Self {
        Self { swaps: Some(swaps), ..self }
    }

    /// Answers in the name of an authority that was made before.
    #[must_use]
    pub fn with_authority(self, authority: Arc<Authority>) -> Self {
        Self { authority: OnceLock::from(authority), ..self }
    }

    /// The authority in whose name it answers where it opens encryption; made when first asked for.
    pub fn authority(&self) -> Result<Arc<Authority>, AuthorityError> {
        if let Some(authority) = self.authority.get() {
            return Ok(Arc::clone(authority));
        }
        let made = Arc::new(Authority::generate()?);
        Ok(Arc::clone(self.authority.get_or_init(|| made)))
    }

    /// Whether there is a host whose encryption it would open.
    #[must_use]
    pub fn opens_tls(&self) -> bool {
        self.swaps.as_ref().is_some_and(|swaps| !swaps.current().is_empty())
            || self.state().policy.opens_tls(Instant::now())
    }

    /// Counted together with others.
    #[must_use]
    pub fn counted_in(self, totals: Arc<Totals>) -> Self {
        Self { totals, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Adds a grant; it holds at once.
    pub fn grant(&self, grant: Grant) -> GrantId {
        let mut state = self.state();
        state.last_id += 1;
        let id = state.last_id;
        let totals = Arc::clone(&self.totals);
        let tally = Tally::new(grant.limits.total_bytes, grant.limits.bytes_per_second, totals);
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

    /// Resolves when a request inside a connection has been denied, for the one who waits for it. Other
    /// denials end their connection, which tells of them.
    pub async fn request_denied(&self) {
        let denied = Arc::clone(&self.state().denied);
        denied.notified().await;
    }

    /// Resolves when the grants change, from now on.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// What would deny a name now, without looking it up.
    #[must_use]
    pub fn name_denial(&self, name: &str) -> Option<Denial> {
        let name = Name::parse(name).ok()?;
        let granted = !self.state().policy.ports_of(&name, Instant::now()).is_empty();
        (!granted).then(|| Denial::new(&name, Reason::NotGranted))
    }

    /// What would deny a connection now, as far as that is known before it is made.
    #[must_use]
    pub fn connection_denial(&self, host: &str, port: u16) -> Option<Denial> {
        let target = target(host, port).ok()?;
        self.state().policy.decide(&target, Instant::now()).err()
    }

    pub(crate) fn note(&self, target: String, grant: Option<GrantId>, took: Duration, fate: Fate) {
        self.totals.ended(&fate);
        self.state().net.add(target, grant, took, fate);
    }

    /// A program of the sandbox looks up a name: the ports granted for it, or a denial.
    pub fn look_up(&self, name: &str) -> Result<(Name, Vec<u16>), Denial> {
        let name = Name::parse(name).map_err(|error| self.deny_host(name.to_owned(), error))?;
        let ports = self.state().policy.ports_of(&name, Instant::now());
        if ports.is_empty() {
            return Err(self.deny(Denial::new(&name, Reason::NotGranted)));
        }
        Ok((name, ports))
    }

    /// Writes down that programs of the sandbox sent packets to addresses.
    pub fn not_routed(&self) {
        self.deny(Denial::no_route());
    }

    /// A program of the sandbox is about to connect, which is decided again once it has.
    pub fn may_connect(&self, host: &str, port: u16) -> Result<(), Denial> {
        self.connection_denial(host, port).map_or(Ok(()), |denial| Err(self.deny(denial)))
    }

    /// A program of the sandbox is about to send single packets.
    pub fn deny_datagrams(&self, host: &str, port: u16) -> Denial {
        match target(host, port) {
            Ok(target) => self.deny(Denial::of(&target, Reason::NotTcp)),
            Err(error) => self.deny_host(format!("{host}:{port}"), error),
        }
    }

    /// A program of the sandbox connects: `inside` is its stream. Everything is decided here, whatever
    /// was decided when the name was looked up. A denial is told in HTTP to those who speak it; others
    /// find their connection reset when the caller drops it.
    pub async fn serve(&self, host: &str, port: u16, inside: &mut Inside) -> Outcome {
        let began = Instant::now();
        let target = match target(host, port) {
            Ok(target) => target,
            Err(error) => {
                let denial = self.deny_host(format!("{host}:{port}"), error);
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
        match last_word {
            Some(words) => inside.say_last(&words).await,
            None => inside.turn_away(&outcome).await,
        }
        outcome
    }

    /// Denies what is no host.
    pub(crate) fn deny_host(&self, text: String, error: HostError) -> Denial {
        self.deny(Denial::new(text, Reason::Malformed).detail(error.to_string()))
    }

    /// Writes a denial down of what never became a connection.
    pub(crate) fn deny(&self, denial: Denial) -> Denial {
        self.note(denial.target.clone(), None, Duration::ZERO, Fate::Denied(denial.clone()));
        denial
    }

    async fn conduct(
        &self,
        target: &Target,
        inside: &mut Inside,
        moved: &mut Moved,
        used: &mut Option<GrantId>,
    ) -> Ended {
        let (granted, tally, _seat) = match self.admit(target) {
            Ok(admitted) => admitted,
            Err(denial) => {
                // Nobody is listened to where too many speak, or who waits for a word of ours.
                let listens = denial.reason != Reason::TooMany && inside.front.is_none();
                let in_http = listens && speaks_http(inside).await;
                let last_word = in_http.then(|| denial.http_response().into_bytes());
                return Ended { outcome: Outcome::Denied(denial), last_word };
            }
        };
        *used = Some(granted.id);
        // A request made of a proxy has to become one that servers take.
        let protocol = match granted.protocol {
            Protocol::Tcp if inside.front == Some(Front::Request) => Protocol::Http,
            protocol => protocol,
        };
        // Where first words are checked they are waited for, and who waits for the way says none.
        if protocol != Protocol::Tcp
            && let Err(error) = inside.welcome().await
        {
            return Outcome::Failed(error.to_string()).into();
        }
        let addresses = Dialed::new(&self.state, target.port);
        let checked = tokio::select! {
            checked = check_first_words(target, protocol, inside) => checked,
            () = self.ended(target, granted, false, &addresses) => Err(Refused::silent(Denial::of(target, Reason::Revoked))),
        };
        let asked = match checked {
            Ok(first) => tokio::select! {
                checked = self.check_request(target, granted.id, first) => checked,
                () = self.ended(target, granted, false, &addresses) => Err(Refused { denial: Denial::of(target, Reason::Revoked), in_http: true }),
            },
            Err(refused) => Err(refused),
        };
        let first = match asked {
            Ok(first) => first,
            Err(Refused { denial, in_http }) => {
                let last_word = in_http.then(|| denial.http_response().into_bytes());
                return Ended { outcome: Outcome::Denied(denial), last_word };
            }
        };
        if granted.protocol == Protocol::Tls && (granted.limited || self.swaps_for(&target.host)) {
            return self.conduct_open(target, granted, inside, first.words, tally, moved).await.into();
        }
        let dialing = Instant::now();
        let dialed = tokio::select! {
            dialed = self.dial(target, &addresses) => dialed,
            () = self.ended(target, granted, false, &addresses) => Err(Undialed::Denied(Denial::of(target, Reason::Revoked))),
        };
        let in_http = protocol == Protocol::Http;
        let outside = match dialed {
            Ok(outside) => outside,
            Err(Undialed::Denied(denial)) => {
                let last_word = in_http.then(|| denial.http_response().into_bytes());
                return Ended { outcome: Outcome::Denied(denial), last_word };
            }
            Err(Undialed::Failed(error)) => {
                let last_word = match inside.front.take() {
                    Some(front) => Some(front.unreached(target, &error)),
                    None => in_http.then(|| bad_gateway(target, &error).into_bytes()),
                };
                return Ended { outcome: Outcome::Failed(error.to_string()), last_word };
            }
        };
        if let Err(error) = inside.welcome().await {
            return Outcome::Failed(error.to_string()).into();
        }
        tally.dialed(dialing.elapsed());
        let open = tally.opened();
        let ended = tokio::select! {
            ended = relay(inside, outside, &first.words, first.follows, &tally, moved) => Some(ended),
            () = self.ended(target, granted, false, &addresses) => None,
        };
        drop(open);
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

    /// A connection whose encryption is opened.
    async fn conduct_open(
        &self,
        target: &Target,
        granted: Granted,
        inside: &mut Inside,
        first: Vec<u8>,
        tally: Arc<Tally>,
        moved: &mut Moved,
    ) -> Outcome {
        let authority = match self.authority() {
            Ok(authority) => authority,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        let meter = Meter::new(Arc::clone(&tally));
        let addresses = Dialed::new(&self.state, target.port);
        let outside = Outside {
            target: target.clone(),
            resolver: Arc::clone(&self.resolver),
            turns: self.turns.clone(),
            dialed: addresses.clone(),
            state: Arc::clone(&self.state),
            roots: Arc::clone(&self.roots),
            meter: Arc::clone(&meter),
            by: granted.id,
        };
        let open = tally.opened();
        // Boxed: most connections are not opened and need no room for it.
        let serving = Box::pin(open::serve(inside, first, &authority, outside, self.swaps.clone()));
        let outcome = tokio::select! {
            // An answer may fail because the bytes are used up: that is the reason to tell.
            biased;
            () = meter.exhausted() => {
                self.state().policy.exhaust(granted.id);
                self.changed.send_replace(());
                Outcome::Denied(Denial::of(target, Reason::Exhausted))
            }
            outcome = serving => outcome,
            () = self.ended(target, granted, true, &addresses) => {
                Outcome::Denied(Denial::of(target, Reason::Revoked))
            }
        };
        drop(open);
        *moved = meter.moved();
        outcome
    }

    /// Whether a secret may go to a host.
    fn swaps_for(&self, host: &Host) -> bool {
        let swaps = self.swaps.as_ref().map(|swaps| swaps.current());
        swaps.is_some_and(|swaps| swaps.iter().any(|swap| swap.is_for(host)))
    }

    /// Holds a request that is not encrypted to what is granted of its host. Secrets do not go that way:
    /// a placeholder in it is told of, and stays one.
    async fn check_request(&self, target: &Target, by: GrantId, first: First) -> Result<First, Refused> {
        if let Some(Asked { method, path, head }) = &first.asked {
            let request = RequestLine { target, protocol: Protocol::Http, method, path };
            let permitted = permit(&self.state, request, by).await;
            permitted.map_err(|denial| Refused { denial, in_http: true })?;
            if let Some(swaps) = &self.swaps {
                let current = swaps.current();
                for swap in placeholders_in(&first.words[..*head], &current) {
                    let own = swap.is_for(&target.host);
                    tell_strays(&**swaps, [swap.placeholder.clone()], target, own);
                }
            }
        }
        Ok(first)
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
        state.policy.connected(granted.id);
        Ok((granted, tally, Seat(self, granted.id)))
    }

    async fn dial(&self, target: &Target, dialed: &Dialed) -> Result<TcpStream, Undialed> {
        dial(target, &self.resolver, &self.turns, dialed).await
    }

    /// Resolves when a target that was granted is so no longer, or only for something else, or an address
    /// that was dialed may be dialed no longer.
    async fn ended(&self, target: &Target, granted: Granted, opened: bool, dialed: &Dialed) {
        let mut changes = self.changed.subscribe();
        loop {
            let now = Instant::now();
            let (still, leads_there, next) = {
                let state = self.state();
                let still = state.policy.still(target, granted.id, now);
                let leads_there = dialed.still(&state, now);
                (still, leads_there, state.policy.next_expiry(now))
            };
            let holds = still.is_ok_and(|now_granted| {
                let spoken = [granted.protocol, Protocol::Tcp].contains(&now_granted.protocol);
                // Nobody looks into a connection that was not opened from its beginning.
                let looked_at =
                    opened || granted.limited || granted.protocol == Protocol::Http || !now_granted.limited;
                spoken && looked_at
            });
            if !holds || !leads_there {
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
struct Seat<'g>(&'g Gate, GrantId);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        state.policy.disconnected(self.1);
        if !state.policy.held().iter().any(|held| held.id == self.1) {
            state.forget(self.1);
        }
    }
}

fn target(host: &str, port: u16) -> Result<Target, HostError> {
    if port == 0 {
        return Err(HostError::Port);
    }
    Ok(Target { host: Host::parse(host)?, port })
}

pub(crate) fn bad_gateway(target: impl fmt::Display, error: impl fmt::Display) -> String {
    let body = format!("{target} is granted to this sandbox and could not be reached: {error}\n");
    format!(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
