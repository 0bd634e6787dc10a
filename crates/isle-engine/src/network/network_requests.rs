//! Network requests: what sandboxes were denied and a person may grant. They are in memory only, bounded, one
//! for the same thing of the same sandbox, and dropped after a while; a denied one is remembered, so that
//! the same question is not asked again and again.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use isle_api::ops::requests::Facts;
use isle_core::clock::wall_clock_ms;
use isle_egress::{ApprovalHook, ApprovalWait, Denial, Gate, Grant, Reason};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Network;
use super::approval_prompt::{Question, QuestionSender};
use crate::events::{Event, EventKind, EventSelection};
use crate::sandbox::Sandbox;
use isle_core::backend::Lifetime;
use isle_core::values::{Address, AskId, RunId};

/// Requests of one sandbox.
const MOST_OF_SANDBOX: usize = 32;
/// Requests of all.
const MOST: usize = 1024;
/// How long one waits for an answer after it was last asked for.
const KEPT_FOR: Duration = Duration::from_secs(3600);
/// How long a denied one is remembered.
const DENIED_FOR: Duration = Duration::from_secs(600);

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestState {
    Pending,
    Denied,
    Approved,
}

impl RequestState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Denied => "denied",
            Self::Approved => "approved",
        }
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct NetworkRequest {
    pub(crate) id: AskId,
    pub(crate) address: Address,
    pub(crate) lifetime: Lifetime,
    /// The incarnation that asked.
    pub(super) sandbox: Weak<Sandbox>,
    /// What would be granted: exactly this.
    pub(crate) grant: Grant,
    /// Why it is not.
    pub(crate) reason: &'static str,
    pub(crate) asked_at_ms: i64,
    asked: Mutex<RequestLog>,
    state: watch::Sender<RequestState>,
}

#[derive(Debug)]
struct RequestLog {
    times: u64,
    /// The run that asked last, where that is known.
    run: Option<RunId>,
    until: Instant,
    /// Whom it was put to.
    put_to: Vec<QuestionSender>,
}

fn facts(grant: &Grant) -> Facts {
    let spoken = |&port: &u16| grant.protocol_on(port).as_str();
    Facts {
        host: grant.pattern.to_string(),
        ports: grant.ports.clone(),
        protocols: grant.ports.iter().map(spoken).collect(),
        only: grant.requests.single().map(|(method, path)| format!("{method} {path}")),
    }
}

impl NetworkRequest {
    pub(crate) fn facts(&self) -> Facts {
        facts(&self.grant)
    }

    pub(crate) fn state(&self) -> RequestState {
        *self.state.borrow()
    }

    /// How often it was asked for, and how long it is still known.
    pub(crate) fn counts(&self) -> (u64, Duration) {
        let asked = crate::lock(&self.asked);
        (asked.times, asked.until.saturating_duration_since(Instant::now()))
    }

    fn is_over(&self, now: Instant) -> bool {
        crate::lock(&self.asked).until <= now
    }

    /// The run that asked.
    pub(crate) fn run(&self) -> Option<RunId> {
        crate::lock(&self.asked).run.clone()
    }

    fn again(&self, run: Option<RunId>) {
        let mut asked = crate::lock(&self.asked);
        asked.times += 1;
        // A repetition of which it is not known whose it is says nothing against the one before.
        asked.run = run.or(asked.run.take());
        if self.state() == RequestState::Pending {
            asked.until = Instant::now() + KEPT_FOR;
        }
    }
}

/// All requests, and who listens for them.
#[derive(Debug, Default)]
pub(crate) struct NetworkRequests {
    known: Mutex<Vec<Arc<NetworkRequest>>>,
    listeners: Mutex<Vec<Arc<EventSelection>>>,
}

/// Somebody who hears of requests, as long as this is held.
#[derive(Debug)]
pub(crate) struct Listening {
    requests: Weak<NetworkRequests>,
    selection: Arc<EventSelection>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(requests) = self.requests.upgrade() {
            crate::lock(&requests.listeners).retain(|one| !Arc::ptr_eq(one, &self.selection));
        }
    }
}

impl NetworkRequests {
    /// All of them, oldest first.
    pub(crate) fn list(&self) -> Vec<Arc<NetworkRequest>> {
        let mut known = crate::lock(&self.known);
        let now = Instant::now();
        known.retain(|ask| !ask.is_over(now));
        known.clone()
    }

    pub(super) fn find(&self, id: &AskId) -> Option<Arc<NetworkRequest>> {
        self.list().into_iter().find(|ask| ask.id == *id)
    }

    /// Takes one out to be answered; of two who answer at once the second finds none.
    pub(super) fn claim(&self, id: &AskId) -> Option<Arc<NetworkRequest>> {
        let mut known = crate::lock(&self.known);
        let place = known.iter().position(|ask| ask.id == *id)?;
        Some(known.remove(place))
    }

    /// It could not be answered after all.
    pub(super) fn put_back(&self, ask: Arc<NetworkRequest>) {
        crate::lock(&self.known).push(ask);
    }

    /// It was granted: whoever waits goes on.
    pub(super) fn approved(ask: &NetworkRequest) {
        ask.state.send_replace(RequestState::Approved);
    }

    /// A sandbox was granted something without being asked about it: requests for that are over, and
    /// whoever waits goes on.
    pub(super) fn settle(&self, sandbox: &Sandbox, gate: &Gate) {
        let address = sandbox.address();
        crate::lock(&self.known).retain(|ask| {
            let settled = ask.address == address && gate.is_already_granted(&ask.grant);
            if settled {
                Self::approved(ask);
            }
            !settled
        });
    }

    /// It was denied, which is remembered.
    pub(super) fn denied(&self, ask: Arc<NetworkRequest>) {
        crate::lock(&ask.asked).until = Instant::now() + DENIED_FOR;
        ask.state.send_replace(RequestState::Denied);
        self.put_back(ask);
    }

    /// The request for something, and whether it is new; `None` when it was denied, or there are too many.
    fn note(
        &self,
        sandbox: &Arc<Sandbox>,
        run: Option<RunId>,
        denial: &Denial,
    ) -> Option<(Arc<NetworkRequest>, bool)> {
        let grant = Grant::parse(denial.wanted.as_ref()?).ok()?;
        let address = sandbox.address();
        let mut known = crate::lock(&self.known);
        let now = Instant::now();
        known.retain(|ask| !ask.is_over(now));
        if let Some(ask) = known.iter().find(|ask| ask.address == address && ask.grant == grant) {
            ask.again(run.clone());
            let same = ask.sandbox.ptr_eq(&Arc::downgrade(sandbox));
            if same || ask.state() == RequestState::Denied {
                return (ask.state() == RequestState::Pending).then(|| (Arc::clone(ask), false));
            }
        }
        // One that an earlier incarnation left makes room.
        known.retain(|ask| ask.address != address || ask.grant != grant);
        let own = known.iter().filter(|ask| ask.address == address).count();
        if own >= MOST_OF_SANDBOX || known.len() >= MOST {
            return None;
        }
        let asked = RequestLog { times: 1, run, until: now + KEPT_FOR, put_to: Vec::new() };
        let ask = Arc::new(NetworkRequest {
            id: AskId::fresh(),
            address,
            lifetime: sandbox.spec.lifetime,
            sandbox: Arc::downgrade(sandbox),
            grant,
            reason: denial.reason.as_str(),
            asked_at_ms: wall_clock_ms(),
            asked: Mutex::new(asked),
            state: watch::Sender::new(RequestState::Pending),
        });
        known.push(Arc::clone(&ask));
        Some((ask, true))
    }

    fn is_heard(&self, event: &Event) -> bool {
        crate::lock(&self.listeners).iter().any(|selection| selection.takes(event))
    }
}

/// Whether a person could change it.
fn can_be_asked_for(denial: &Denial) -> bool {
    match denial.reason {
        Reason::NotGranted
        | Reason::PortNotGranted
        | Reason::RequestNotGranted
        | Reason::ForbiddenAddress
        | Reason::Exhausted => true,
        Reason::Malformed
        | Reason::NotPeer
        | Reason::NoRoute
        | Reason::NotTcp
        | Reason::PastProxy
        | Reason::SecretMisplaced
        | Reason::SecretMethod
        | Reason::UnreadableResponse
        | Reason::Unresolvable
        | Reason::NotTls
        | Reason::WrongServerName
        | Reason::NotHttp
        | Reason::WrongHostHeader
        | Reason::AmbiguousRequest
        | Reason::AmbiguousPath
        | Reason::OverrideHeader
        // Needs a word that nobody says by pressing a button.
        | Reason::MetadataAddress
        | Reason::Revoked
        | Reason::TooMany => false,
    }
}

impl Network {
    /// Somebody hears of requests who may answer them. Only who asks for them by their kind does.
    pub(crate) fn listen_for_requests(&self, selection: &EventSelection) -> Option<Listening> {
        if !selection.kinds.contains(&EventKind::NetworkRequested) {
            return None;
        }
        let selection = Arc::new(selection.clone());
        crate::lock(&self.requests.listeners).push(Arc::clone(&selection));
        Some(Listening { requests: Arc::downgrade(&self.requests), selection })
    }

    /// What the gate of a sandbox does about something that is denied.
    pub(super) fn asker(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> ApprovalHook {
        let (network, sandbox) = (Arc::downgrade(self), Arc::downgrade(sandbox));
        ApprovalHook::new(move |denial| {
            let (network, sandbox) = (network.upgrade()?, sandbox.upgrade()?);
            network.ask(&sandbox, denial)
        })
    }

    /// Makes a request of a denial. What is returned is to be waited for: somebody is being asked.
    fn ask(self: &Arc<Self>, sandbox: &Arc<Sandbox>, denial: &Denial) -> Option<ApprovalWait> {
        // A child has what all have, whoever is asked.
        if !can_be_asked_for(denial) || sandbox.spec.child.is_some() {
            return None;
        }
        let run = denial.by.as_ref().and_then(|run| run.as_str().parse().ok());
        let (ask, is_new) = self.requests.note(sandbox, run, denial)?;
        let facts = ask.facts();
        let message = format!("asks to reach {}", facts.words());
        let mut data = facts.with(json!({ "request": ask.id, "grant": ask.grant.to_string() }));
        data["reason"] = json!(ask.reason);
        let mut event = Event::of(EventKind::NetworkRequested, &ask.address, message).data(data);
        event.run = ask.run().map(|run| run.to_string());
        // Before it is told: who hears of it may leave at once.
        let is_heard = self.requests.is_heard(&event);
        if is_new {
            self.notifier.publish(event);
        }
        let within = self.config.network.ask?.0;
        let place = Arc::clone(&sandbox.network.patience).try_acquire_owned().ok()?;
        if !self.put(&ask, sandbox, within) && !is_heard {
            return None;
        }
        let mut state = ask.state.subscribe();
        let waiting = async move {
            let answered = state.wait_for(|state| *state != RequestState::Pending);
            tokio::time::timeout(within, answered).await.ok();
            drop(place);
        };
        Some(Box::pin(waiting))
    }

    /// Puts a request to a client that waits for a run of the sandbox; whether one has it before it.
    fn put(&self, ask: &NetworkRequest, sandbox: &Sandbox, within: Duration) -> bool {
        let mut asked = crate::lock(&ask.asked);
        asked.put_to.retain(|sender| !sender.is_closed());
        if !asked.put_to.is_empty() {
            return true;
        }
        let question = Question::of(ask, asked.run.as_ref(), sandbox, within);
        // Whoever waits for the run that asks; where that is not known, whoever waits for one of the sandbox.
        let runs = self.runs.running_in(&sandbox.id);
        let asks = |run: &&Arc<crate::run::Run>| asked.run.as_ref().is_none_or(|id| run.id == *id);
        let runs: Vec<_> = runs.iter().rev().filter(asks).collect();
        for run in runs {
            for sender in run.askers() {
                if sender.try_send(question.clone()).is_ok() {
                    asked.put_to.push(sender);
                    return true;
                }
            }
        }
        false
    }
}
