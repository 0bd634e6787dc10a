//! The gate's stream to the agent of a sandbox: names are answered and connections taken on it for as
//! long as both live. What comes from there is the guest's word and decides nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isle_egress::{Asker, Denial, Gate, Inside, Outcome, Reason};
use isle_wire::{
    FrameError, GateAnswer, GateAttempt, GateEvent, GateLookup, GateOpened, GatePassed, GatePorts, Kind,
    Request, Stream, read_frame, write_message,
};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::peers::{Peering, is_peer};
use crate::agent::AgentClient;

/// How long an agent may take to serve a gate.
const PATIENCE: Duration = Duration::from_secs(20);
/// Connections of one sandbox that are being decided or are open; more wait unheard. The gate itself
/// refuses a little earlier, so that programs hear why.
const MOST_OPEN: usize = 1280;
const DEPTH: usize = 256;
/// Different denials that are told of.
const MOST_TOLD: usize = 256;

/// Has the agent serve a gate. The task it starts ends with the connection, or when told to.
pub(super) async fn attach(
    agent: &AgentClient,
    gate: Arc<Gate>,
    halted: CancellationToken,
    desk: Desk,
    peering: Peering,
) -> Result<(), String> {
    let opening = async {
        let mut stream = agent.open().await.map_err(|error| error.message)?;
        write_message(&mut stream, &Request::Gate).await.map_err(|error| error.to_string())?;
        match next(&mut stream).await.map_err(|error| error.to_string())? {
            Some(GateEvent::Ready) => Ok(stream),
            Some(GateEvent::Failed(why)) => Err(why),
            Some(
                GateEvent::Lookup(_)
                | GateEvent::Attempt(_)
                | GateEvent::Opened(_)
                | GateEvent::Proxied(_)
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
            served = serve(stream, agent, gate, desk, peering) => served,
            () = halted.cancelled() => Ok(()),
        };
        if let Err(error) = served {
            tracing::debug!(%error, "the gate of a sandbox ended");
        }
    });
    Ok(())
}

async fn next(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Result<Option<GateEvent>, FrameError> {
    match read_frame(stream).await? {
        Some(frame) => frame.decode().map(Some),
        None => Ok(None),
    }
}

/// Tells of a denial.
pub(super) type Teller = Box<dyn Fn(&Denial) + Send + Sync>;

/// What is done about denials.
pub(super) struct Desk {
    pub(super) teller: Teller,
    pub(super) asker: Asker,
}

/// Tells of each different denial once; of a bounded number, since the guest chooses them.
struct Told {
    teller: Teller,
    asker: Asker,
    known: Mutex<HashSet<Denial>>,
}

impl Told {
    fn tell(&self, denial: &Denial) {
        let is_new = {
            let mut known = crate::lock(&self.known);
            known.len() < MOST_TOLD && known.insert(denial.clone())
        };
        if is_new {
            (self.teller)(denial);
        }
        // Of what is decided before a connection is made, or within one, a request was made then.
        if denial.reason == Reason::ForbiddenAddress {
            drop(self.asker.ask(denial));
        }
    }

    /// The ports that may be connected to.
    fn answer(&self, gate: &Gate, peering: &Peering, wanted: &Wanted) -> GateAnswer {
        let (question, found) = match wanted {
            Wanted::Name(lookup) => {
                let found = peering
                    .look_up(gate, &lookup.name)
                    .unwrap_or_else(|| gate.look_up(&lookup.name).map(|(_, ports)| ports));
                (lookup.question, found)
            }
            Wanted::Connection(GateAttempt { question, host, port, datagram }) => {
                let granted = if *datagram {
                    Err(gate.deny_datagrams(host, *port))
                } else {
                    peering.may_connect(gate, host, *port).unwrap_or_else(|| gate.may_connect(host, *port))
                };
                (*question, granted.map(|()| vec![*port]))
            }
        };
        let ports = match found {
            Ok(ports) => ports,
            Err(denial) => {
                self.tell(&denial);
                Vec::new()
            }
        };
        GateAnswer::Ports(GatePorts { question, ports })
    }
}

/// What a program waits for the host's word about.
enum Wanted {
    Name(GateLookup),
    Connection(GateAttempt),
}

impl Wanted {
    /// What a person could be asked about: not whom a family knows, which its policy settles, nor what no
    /// grant gives.
    fn denial(&self, gate: &Gate) -> Option<Denial> {
        match self {
            Self::Name(lookup) if is_peer(&lookup.name) => None,
            Self::Name(lookup) => gate.name_denial(&lookup.name),
            Self::Connection(attempt) if attempt.datagram || is_peer(&attempt.host) => None,
            Self::Connection(attempt) => gate.connection_denial(&attempt.host, attempt.port),
        }
    }
}

async fn serve(
    stream: Stream,
    agent: AgentClient,
    gate: Arc<Gate>,
    desk: Desk,
    peering: Peering,
) -> Result<(), FrameError> {
    let Desk { teller, asker } = desk;
    let peering = Arc::new(peering);
    let told = Arc::new(Told { teller, asker, known: Mutex::default() });
    let (mut from_agent, mut to_agent) = tokio::io::split(stream);
    let (answers, mut outgoing) = mpsc::channel::<GateAnswer>(DEPTH);
    let places = Arc::new(Semaphore::new(MOST_OPEN));
    // Connections end with the gate.
    let mut connections = tokio::task::JoinSet::new();
    let hear = async {
        while let Some(event) = next(&mut from_agent).await? {
            let wanted = match event {
                GateEvent::Lookup(lookup) => Wanted::Name(lookup),
                GateEvent::Attempt(attempt) => Wanted::Connection(attempt),
                GateEvent::Opened(GateOpened { socket, host, port }) => {
                    let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
                    while connections.try_join_next().is_some() {}
                    // One that is not there is reset already, or never was.
                    let Some(socket) = agent.handed(socket, Kind::Tcp) else { continue };
                    let way = Way::new(&gate, &told, &peering);
                    connections.spawn(async move {
                        if let Ok(inside) = Inside::new(socket) {
                            way.conduct(&host, port, inside).await;
                        }
                        drop(place);
                    });
                    continue;
                }
                GateEvent::Proxied(socket) => {
                    let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
                    while connections.try_join_next().is_some() {}
                    let Some(socket) = agent.handed(socket, Kind::Pair) else { continue };
                    let way = Way::new(&gate, &told, &peering);
                    connections.spawn(async move {
                        if let Ok(inside) = Inside::new(socket) {
                            way.conduct_proxied(inside).await;
                        }
                        drop(place);
                    });
                    continue;
                }
                GateEvent::Passed(GatePassed { address, port }) => {
                    told.tell(&gate.deny_past_proxy(&address, port));
                    continue;
                }
                GateEvent::Ready | GateEvent::Failed(_) => return Err(FrameError::Unexpected("an event")),
            };
            if let Some(asked) = wanted.denial(&gate).and_then(|denial| told.asker.ask(&denial)) {
                while connections.try_join_next().is_some() {}
                let (gate, told, answers) = (Arc::clone(&gate), Arc::clone(&told), answers.clone());
                let peering = Arc::clone(&peering);
                connections.spawn(async move {
                    asked.await;
                    answers.send(told.answer(&gate, &peering, &wanted)).await.ok();
                });
            } else if answers.send(told.answer(&gate, &peering, &wanted)).await.is_err() {
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
            let denials = gate.denials_after(from);
            for denial in denials.iter().filter(|denial| denial.reason == Reason::RequestNotGranted) {
                told.tell(denial);
            }
        }
    };
    tokio::select! { ended = hear => ended, ended = tell => ended, () = watch => Ok(()) }
}

/// What a connection needs from its opening to its end.
struct Way {
    gate: Arc<Gate>,
    told: Arc<Told>,
    peering: Arc<Peering>,
}

impl Way {
    fn new(gate: &Arc<Gate>, told: &Arc<Told>, peering: &Arc<Peering>) -> Self {
        Self { gate: Arc::clone(gate), told: Arc::clone(told), peering: Arc::clone(peering) }
    }

    /// A program that speaks to its proxy says itself where it wants to go.
    async fn conduct_proxied(&self, mut inside: Inside) {
        match self.gate.hear(&mut inside).await {
            Ok(target) => self.conduct(&target.host.to_string(), target.port, inside).await,
            Err(Some(denial)) => self.told.tell(&denial),
            Err(None) => {}
        }
    }

    async fn conduct(&self, host: &str, port: u16, mut inside: Inside) {
        let known = is_peer(host);
        let denial = (!known).then(|| self.gate.connection_denial(host, port)).flatten();
        if let Some(asked) = denial.and_then(|denial| self.told.asker.ask(&denial)) {
            asked.await;
        }
        let outcome = match self.peering.serve(&self.gate, host, port, &mut inside).await {
            Some(outcome) => outcome,
            None => self.gate.serve(host, port, &mut inside).await,
        };
        match outcome {
            Outcome::Denied(denial) => self.told.tell(&denial),
            Outcome::Closed | Outcome::Failed(_) => {}
        }
    }
}
