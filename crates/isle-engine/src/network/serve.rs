//! The gate's stream to the agent of a sandbox: names are answered and connections taken on it for as
//! long as both live. What comes from there is the guest's word and decides nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isle_egress::{ApprovalHook, Denial, Gate, Outcome, Reason, RunKey, SandboxStream};
use isle_wire::{
    Failure, FailureKind, FrameError, GateAnswer, GateAttempt, GateEvent, GateLookup, GateOpened, GatePassed,
    GatePorts, Request, SocketKind, read_frame, write_message,
};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::peers::{Peering, is_peer};
use crate::agent::{AgentClient, AgentStream, Purpose};

/// How long an agent may take to serve a gate.
const PATIENCE: Duration = Duration::from_secs(20);
/// Connections of one sandbox that are being decided or are open; more wait unheard. The gate itself
/// refuses a little earlier, so that programs hear why.
const MOST_OPEN: usize = 1280;
const DEPTH: usize = 256;
/// Different denials that are told of.
const MOST_REPORTED: usize = 256;

/// Has the agent serve a gate. The task it starts ends with the connection, or when told to.
pub(super) async fn serve_gate(
    agent: &AgentClient,
    gate: Arc<Gate>,
    halted: CancellationToken,
    handlers: DenialHandlers,
    peering: Peering,
) -> Result<(), String> {
    let opening = async {
        let mut stream = agent.open(Purpose::Call).await.map_err(|error| error.message)?;
        write_message(&mut stream, &Request::Gate(agent.connections()))
            .await
            .map_err(|error| error.to_string())?;
        match next(&mut stream).await.map_err(|error| error.to_string())? {
            Some(GateEvent::Ready) => {
                stream.may_be_quiet();
                Ok(stream)
            }
            Some(GateEvent::Failed(failure)) => Err(gate_failure(&failure)),
            Some(
                GateEvent::Lookup(_)
                | GateEvent::Attempt(_)
                | GateEvent::Opened(_)
                | GateEvent::Proxied(..)
                | GateEvent::Passed(_),
            )
            | None => Err("it gave no answer".into()),
        }
    };
    let stream =
        tokio::time::timeout(PATIENCE, opening).await.map_err(|_| "it did not answer".to_owned())??;
    let agent = agent.clone();
    tokio::spawn(async move {
        let served = tokio::select! {
            served = serve(stream, agent, gate, handlers, peering) => served,
            () = halted.cancelled() => Ok(()),
        };
        if let Err(error) = served {
            tracing::debug!(%error, "the gate of a sandbox ended");
        }
    });
    Ok(())
}

/// Why an agent cannot serve a gate.
fn gate_failure(failure: &Failure) -> String {
    match failure.kind {
        FailureKind::NoDescriptorPassing => "its connection cannot pass descriptors".into(),
        FailureKind::NotInThisMode => "its agent does not serve a network".into(),
        _ => std::io::Error::from_raw_os_error(failure.errno).to_string(),
    }
}

async fn next(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Result<Option<GateEvent>, FrameError> {
    match read_frame(stream).await? {
        Some(frame) => frame.decode().map(Some),
        None => Ok(None),
    }
}

/// Reports a denial.
pub(super) type DenialReporter = Box<dyn Fn(&Denial) + Send + Sync>;

/// What is done about denials.
pub(super) struct DenialHandlers {
    pub(super) report: DenialReporter,
    pub(super) asker: ApprovalHook,
    pub(super) run_of: RunLookup,
}

/// Knows a run of the sandbox by the id its agent gives; `None` for what is no run that goes on there.
pub(super) type RunLookup = Box<dyn Fn(&str) -> Option<RunKey> + Send + Sync>;

/// Tells of each different denial once; of a bounded number, since the guest chooses them.
struct Denials {
    report: DenialReporter,
    asker: ApprovalHook,
    run_of: RunLookup,
    known: Mutex<HashSet<Denial>>,
}

impl Denials {
    fn holder(&self, run: Option<&str>) -> Option<RunKey> {
        run.and_then(|run| (self.run_of)(run))
    }

    fn report_once(&self, denial: &Denial) {
        let is_new = {
            let mut known = crate::lock(&self.known);
            // Whoever it was: many runs that try the same are told of once.
            known.len() < MOST_REPORTED && known.insert(denial.clone().by(None))
        };
        if is_new {
            (self.report)(denial);
        }
        // Of what is decided before a connection is made, or within one, a request was made then.
        if denial.reason == Reason::ForbiddenAddress {
            drop(self.asker.ask(denial));
        }
    }

    /// The ports that may be connected to.
    fn answer(&self, gate: &Gate, peering: &Peering, wanted: &GateQuestion) -> GateAnswer {
        let (question, found) = match wanted {
            GateQuestion::Name(lookup) => {
                let by = self.holder(lookup.run.as_deref());
                let found = peering
                    .look_up(gate, &lookup.name, by.as_ref())
                    .unwrap_or_else(|| gate.look_up(&lookup.name, by.as_ref()).map(|(_, ports)| ports));
                (lookup.question, found)
            }
            GateQuestion::Connection(GateAttempt { question, host, port, datagram, run }) => {
                let by = self.holder(run.as_deref());
                let by = by.as_ref();
                let granted = if *datagram {
                    Err(gate.deny_datagrams(host, *port, by))
                } else {
                    peering
                        .may_connect(gate, host, *port, by)
                        .unwrap_or_else(|| gate.may_connect(host, *port, by))
                };
                (*question, granted.map(|()| vec![*port]))
            }
        };
        let ports = match found {
            Ok(ports) => ports,
            Err(denial) => {
                self.report_once(&denial);
                Vec::new()
            }
        };
        GateAnswer::Ports(GatePorts { question, ports })
    }
}

/// What a program waits for the host's word about.
enum GateQuestion {
    Name(GateLookup),
    Connection(GateAttempt),
}

impl GateQuestion {
    /// What a person could be asked about: not whom a family knows, which its policy settles, nor what no
    /// grant gives.
    fn denial(&self, gate: &Gate, denials: &Denials) -> Option<Denial> {
        match self {
            Self::Name(lookup) if is_peer(&lookup.name) => None,
            Self::Name(lookup) => {
                gate.name_denial(&lookup.name, denials.holder(lookup.run.as_deref()).as_ref())
            }
            Self::Connection(attempt) if attempt.datagram || is_peer(&attempt.host) => None,
            Self::Connection(attempt) => {
                let by = denials.holder(attempt.run.as_deref());
                gate.connection_denial(&attempt.host, attempt.port, by.as_ref())
            }
        }
    }
}

async fn serve(
    stream: AgentStream,
    agent: AgentClient,
    gate: Arc<Gate>,
    handlers: DenialHandlers,
    peering: Peering,
) -> Result<(), FrameError> {
    let DenialHandlers { report, asker, run_of } = handlers;
    let peering = Arc::new(peering);
    let denials = Arc::new(Denials { report, asker, run_of, known: Mutex::default() });
    let (mut from_agent, mut to_agent) = tokio::io::split(stream);
    let (answers, mut outgoing) = mpsc::channel::<GateAnswer>(DEPTH);
    let places = Arc::new(Semaphore::new(MOST_OPEN));
    // Connections end with the gate.
    let mut connections = tokio::task::JoinSet::new();
    let hear = async {
        while let Some(event) = next(&mut from_agent).await? {
            let wanted = match event {
                GateEvent::Lookup(lookup) => GateQuestion::Name(lookup),
                GateEvent::Attempt(attempt) => GateQuestion::Connection(attempt),
                GateEvent::Opened(GateOpened { socket, host, port, run }) => {
                    let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
                    while connections.try_join_next().is_some() {}
                    let connection = ConnectionContext::new(&gate, &denials, &peering, run.as_deref());
                    // One that is not there is reset already, or never was.
                    let Some(announced) = agent.announced(socket, SocketKind::Tcp) else { continue };
                    connections.spawn(async move {
                        if let Some(inside) = announced.open().await {
                            connection.conduct(&host, port, inside).await;
                        }
                        drop(place);
                    });
                    continue;
                }
                GateEvent::Proxied(socket, run) => {
                    let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
                    while connections.try_join_next().is_some() {}
                    let connection = ConnectionContext::new(&gate, &denials, &peering, run.as_deref());
                    let Some(announced) = agent.announced(socket, SocketKind::Pair) else { continue };
                    connections.spawn(async move {
                        if let Some(inside) = announced.open().await {
                            connection.conduct_proxied(inside).await;
                        }
                        drop(place);
                    });
                    continue;
                }
                GateEvent::Passed(GatePassed { address, port, run }) => {
                    let by = denials.holder(run.as_deref());
                    denials.report_once(&gate.deny_direct_connection(&address, port, by));
                    continue;
                }
                GateEvent::Ready | GateEvent::Failed(_) => return Err(FrameError::Unexpected("an event")),
            };
            if let Some(asked) = wanted.denial(&gate, &denials).and_then(|denial| denials.asker.ask(&denial))
            {
                while connections.try_join_next().is_some() {}
                let (gate, denials, answers) = (Arc::clone(&gate), Arc::clone(&denials), answers.clone());
                let peering = Arc::clone(&peering);
                connections.spawn(async move {
                    asked.await;
                    answers.send(denials.answer(&gate, &peering, &wanted)).await.ok();
                });
            } else if answers.send(denials.answer(&gate, &peering, &wanted)).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    let tell = async {
        while let Some(answer) = outgoing.recv().await {
            write_message(&mut to_agent, &answer).await?;
        }
        Ok(())
    };
    // Requests inside a connection are denied one by one, and it goes on.
    let watch = async {
        let mut seen = gate.sequence();
        loop {
            gate.request_denied().await;
            let from = std::mem::replace(&mut seen, gate.sequence());
            let denied = gate.denials_after(from);
            for denial in denied.iter().filter(|denial| is_of_request(denial.reason)) {
                denials.report_once(denial);
            }
        }
    };
    tokio::select! { ended = hear => ended, ended = tell => ended, () = watch => Ok(()) }
}

/// Whether it is a request inside a connection that was denied.
fn is_of_request(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::RequestNotGranted | Reason::AmbiguousRequest | Reason::AmbiguousPath | Reason::OverrideHeader
    )
}

/// What a connection needs from its opening to its end.
struct ConnectionContext {
    gate: Arc<Gate>,
    denials: Arc<Denials>,
    peering: Arc<Peering>,
    by: Option<RunKey>,
}

impl ConnectionContext {
    fn new(gate: &Arc<Gate>, denials: &Arc<Denials>, peering: &Arc<Peering>, run: Option<&str>) -> Self {
        let by = denials.holder(run);
        Self { gate: Arc::clone(gate), denials: Arc::clone(denials), peering: Arc::clone(peering), by }
    }

    /// A program that speaks to its proxy says itself where it wants to go.
    async fn conduct_proxied(&self, inside: SandboxStream) {
        let mut inside = inside.by(self.by.clone());
        match self.gate.read_proxy_request(&mut inside).await {
            Ok(target) => self.conduct(&target.host.to_string(), target.port, inside).await,
            Err(Some(denial)) => self.denials.report_once(&denial),
            Err(None) => {}
        }
    }

    async fn conduct(&self, host: &str, port: u16, inside: SandboxStream) {
        let (known, by) = (is_peer(host), self.by.as_ref());
        let mut inside = inside.by(by.cloned());
        let denial = (!known).then(|| self.gate.connection_denial(host, port, by)).flatten();
        if let Some(asked) = denial.and_then(|denial| self.denials.asker.ask(&denial)) {
            asked.await;
        }
        let outcome = match self.peering.serve(&self.gate, host, port, by, &mut inside).await {
            Some(outcome) => outcome,
            None => self.gate.serve(host, port, &mut inside).await,
        };
        match outcome {
            Outcome::Denied(denial) => self.denials.report_once(&denial),
            Outcome::Closed | Outcome::Failed(_) => {}
        }
    }
}
