//! Requests: what sandboxes were denied and a person may grant. They are in memory only, bounded, one for
//! the same thing of the same sandbox, and forgotten after a while; a denied one is remembered, so that
//! nobody is asked again and again.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use isle_egress::{Answered, Asker, Denial, Gate, Grant, Reason};
use isle_store::wall_clock_ms;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::question::{Question, QuestionSender};
use crate::backend::Lifetime;
use crate::engine::Inner;
use crate::events::{Event, EventKind, EventSelection};
use crate::sandbox::Sandbox;
use crate::values::{Address, AskId, RunId};

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
pub(crate) enum AskState {
    Pending,
    Denied,
    Approved,
}

impl AskState {
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
pub(crate) struct Ask {
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
    asked: Mutex<Asked>,
    state: watch::Sender<AskState>,
}

#[derive(Debug)]
struct Asked {
    times: u64,
    /// The run that asked last: of several that went on, the one that began last.
    run: Option<RunId>,
    until: Instant,
    /// Whom it was put to.
    put_to: Vec<QuestionSender>,
}

/// What a request is about, in parts.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Facts {
    pub(crate) host: String,
    pub(crate) ports: Vec<u16>,
    /// What may be spoken on each of the ports: http, tls, or tcp for anything.
    pub(crate) protocols: Vec<&'static str>,
    /// The one request it is about, such as `POST /v1/items`; everything when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) only: Option<String>,
}

impl Facts {
    fn of(grant: &Grant) -> Self {
        let spoken = |&port: &u16| grant.protocol_on(port).as_str();
        Self {
            host: grant.pattern.to_string(),
            ports: grant.ports.clone(),
            protocols: grant.ports.iter().map(spoken).collect(),
            only: grant.requests.single().map(|(method, path)| format!("{method} {path}")),
        }
    }

    /// Beside what else is told.
    pub(super) fn with(&self, mut told: Value) -> Value {
        if let (Value::Object(told), Ok(Value::Object(facts))) = (&mut told, serde_json::to_value(self)) {
            told.extend(facts);
        }
        told
    }

    /// As words.
    pub(crate) fn words(&self) -> String {
        let ports: Vec<String> = self
            .ports
            .iter()
            .zip(&self.protocols)
            .map(|(port, protocol)| format!("{port} ({protocol})"))
            .collect();
        let only = self.only.as_ref().map_or_else(String::new, |only| format!(", for {only} only"));
        format!("{}, port {}{only}", self.host, ports.join(" and "))
    }
}

impl Ask {
    pub(crate) fn facts(&self) -> Facts {
        Facts::of(&self.grant)
    }

    pub(crate) fn state(&self) -> AskState {
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
        asked.run = run;
        if self.state() == AskState::Pending {
            asked.until = Instant::now() + KEPT_FOR;
        }
    }
}

/// All requests, and who listens for them.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    known: Mutex<Vec<Arc<Ask>>>,
    listeners: Mutex<Vec<Arc<EventSelection>>>,
}

/// Somebody who hears of requests, as long as this is held.
#[derive(Debug)]
pub(crate) struct Listening {
    inner: Weak<Inner>,
    selection: Arc<EventSelection>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            crate::lock(&inner.asks.listeners).retain(|one| !Arc::ptr_eq(one, &self.selection));
        }
    }
}

impl Asks {
    /// All of them, oldest first.
    pub(crate) fn list(&self) -> Vec<Arc<Ask>> {
        let mut known = crate::lock(&self.known);
        let now = Instant::now();
        known.retain(|ask| !ask.is_over(now));
        known.clone()
    }

    pub(super) fn find(&self, id: &AskId) -> Option<Arc<Ask>> {
        self.list().into_iter().find(|ask| ask.id == *id)
    }

    /// Takes one out to be answered; of two who answer at once the second finds none.
    pub(super) fn claim(&self, id: &AskId) -> Option<Arc<Ask>> {
        let mut known = crate::lock(&self.known);
        let place = known.iter().position(|ask| ask.id == *id)?;
        Some(known.remove(place))
    }

    /// It could not be answered after all.
    pub(super) fn put_back(&self, ask: Arc<Ask>) {
        crate::lock(&self.known).push(ask);
    }

    /// It was granted: whoever waits goes on.
    pub(super) fn approved(ask: &Ask) {
        ask.state.send_replace(AskState::Approved);
    }

    /// A sandbox was granted something without being asked about it: requests for that are over, and
    /// whoever waits goes on.
    pub(super) fn settle(&self, sandbox: &Sandbox, gate: &Gate) {
        let address = sandbox.address();
        crate::lock(&self.known).retain(|ask| {
            let settled = ask.address == address && gate.grants_already(&ask.grant);
            if settled {
                Self::approved(ask);
            }
            !settled
        });
    }

    /// It was denied, which is remembered.
    pub(super) fn denied(&self, ask: Arc<Ask>) {
        crate::lock(&ask.asked).until = Instant::now() + DENIED_FOR;
        ask.state.send_replace(AskState::Denied);
        self.put_back(ask);
    }

    /// The request for something, and whether it is new; `None` when it was denied, or there are too many.
    fn note(&self, sandbox: &Arc<Sandbox>, run: Option<RunId>, denial: &Denial) -> Option<(Arc<Ask>, bool)> {
        let grant = Grant::parse(denial.wanted.as_ref()?).ok()?;
        let address = sandbox.address();
        let mut known = crate::lock(&self.known);
        let now = Instant::now();
        known.retain(|ask| !ask.is_over(now));
        if let Some(ask) = known.iter().find(|ask| ask.address == address && ask.grant == grant) {
            ask.again(run.clone());
            let same = ask.sandbox.ptr_eq(&Arc::downgrade(sandbox));
            if same || ask.state() == AskState::Denied {
                return (ask.state() == AskState::Pending).then(|| (Arc::clone(ask), false));
            }
        }
        // One that an earlier incarnation left makes room.
        known.retain(|ask| ask.address != address || ask.grant != grant);
        let own = known.iter().filter(|ask| ask.address == address).count();
        if own >= MOST_OF_SANDBOX || known.len() >= MOST {
            return None;
        }
        let asked = Asked { times: 1, run, until: now + KEPT_FOR, put_to: Vec::new() };
        let ask = Arc::new(Ask {
            id: AskId::fresh(),
            address,
            lifetime: sandbox.spec.lifetime,
            sandbox: Arc::downgrade(sandbox),
            grant,
            reason: denial.reason.as_str(),
            asked_at_ms: wall_clock_ms(),
            asked: Mutex::new(asked),
            state: watch::Sender::new(AskState::Pending),
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
        | Reason::Unresolvable
        | Reason::NotTls
        | Reason::WrongServerName
        | Reason::NotHttp
        | Reason::WrongHostHeader
        | Reason::Revoked
        | Reason::TooMany => false,
    }
}

impl Inner {
    /// Somebody hears of requests who may answer them. Only who asks for them by their kind does.
    pub(crate) fn listen_for_requests(self: &Arc<Self>, selection: &EventSelection) -> Option<Listening> {
        if !selection.kinds.contains(&EventKind::NetworkRequested) {
            return None;
        }
        let selection = Arc::new(selection.clone());
        crate::lock(&self.asks.listeners).push(Arc::clone(&selection));
        Some(Listening { inner: Arc::downgrade(self), selection })
    }

    /// What the gate of a sandbox does about something that is denied.
    pub(super) fn asker(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Asker {
        let (engine, sandbox) = (Arc::downgrade(self), Arc::downgrade(sandbox));
        Asker::new(move |denial| {
            let (engine, sandbox) = (engine.upgrade()?, sandbox.upgrade()?);
            engine.ask(&sandbox, denial)
        })
    }

    /// Makes a request of a denial. What is returned is to be waited for: somebody is being asked.
    fn ask(self: &Arc<Self>, sandbox: &Arc<Sandbox>, denial: &Denial) -> Option<Answered> {
        // A child has what all have, whoever is asked.
        if !can_be_asked_for(denial) || sandbox.spec.child.is_some() {
            return None;
        }
        let runs = self.runs.running_in(&sandbox.id);
        let (ask, is_new) = self.asks.note(sandbox, runs.last().map(|run| run.id.clone()), denial)?;
        let facts = ask.facts();
        let message = format!("asks to reach {}", facts.words());
        let mut data = facts.with(json!({ "request": ask.id, "grant": ask.grant.to_string() }));
        data["reason"] = json!(ask.reason);
        let mut event = Event::of(EventKind::NetworkRequested, &ask.address, message).data(data);
        event.run = ask.run().map(|run| run.to_string());
        // Before it is told: who hears of it may leave at once.
        let is_heard = self.asks.is_heard(&event);
        if is_new {
            self.publish(event);
        }
        let within = self.config.network.ask?.0;
        let place = Arc::clone(&sandbox.network.patience).try_acquire_owned().ok()?;
        if !self.put(&ask, sandbox, within) && !is_heard {
            return None;
        }
        let mut state = ask.state.subscribe();
        let waiting = async move {
            let answered = state.wait_for(|state| *state != AskState::Pending);
            tokio::time::timeout(within, answered).await.ok();
            drop(place);
        };
        Some(Box::pin(waiting))
    }

    /// Puts a request to a client that waits for a run of the sandbox; whether one has it before it.
    fn put(&self, ask: &Ask, sandbox: &Sandbox, within: Duration) -> bool {
        let mut asked = crate::lock(&ask.asked);
        asked.put_to.retain(|sender| !sender.is_closed());
        if !asked.put_to.is_empty() {
            return true;
        }
        let question = Question::of(ask, asked.run.as_ref(), sandbox, within);
        for run in self.runs.running_in(&sandbox.id).iter().rev() {
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
