//! The network of a sandbox, seen from inside. The agent is the name server and gives every granted name an
//! address on the sandbox's own loopback; sockets that programs connect there are passed to the host. Where
//! programs share the host's network namespace they use a proxy instead (`socket_pairs`). The agent knows
//! no policy and copies no bytes: the host decides about each name and connection, and without its stream
//! there is no network.

mod attribution;
mod carried;
mod connect;
mod connect_intercept;
mod dial;
pub(crate) mod dns;
mod idle_dns;
mod name_addresses;
mod sockaddr;
mod socket_pairs;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use isle_setup::network::NAME_SERVER;
use isle_wire::{
    Connections, DescriptorSender, Failure, FailureKind, FrameError, GateAnswer, GateAttempt, GateEvent,
    GateLookup, GateOpened, GatePorts, Stream, read_frame, socket_cookie, write_message,
};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::mode::NetworkAccess;
use crate::serve::Shared;
use attribution::Protocol;
use name_addresses::NameAddresses;

pub(crate) use carried::carry;
pub(crate) use connect_intercept::intercept;
pub(crate) use dial::dial;
pub(crate) use idle_dns::listen_for_queries;
pub(crate) use socket_pairs::answer;

const NAME_PORT: u16 = 53;
/// Maximum number of queries that wait for the host.
const MAX_QUERIES: usize = 512;
/// Maximum number of events, some of them with a socket, that wait to be sent to the host.
const EVENT_QUEUE: usize = 256;

/// What the streams of the network share.
#[derive(Default)]
pub(crate) struct Network {
    state: RefCell<State>,
    /// Notified when a daemon has disconnected.
    disconnected: Notify,
    /// Notified when a gate is served.
    gate_served: Notify,
    /// Number of programs that wait in `connect`.
    intercepted: Cell<usize>,
    /// Announced connections for which the host has not opened a stream yet.
    waiting: carried::Waiting,
}

#[derive(Default)]
struct State {
    /// Number of the gate that is served: a later one replaces an earlier one.
    gate: u64,
    /// Where queries arrive while no gate is served.
    idle: Option<idle_dns::Idle>,
    /// The gate that is served.
    serving: Weak<Serving>,
    /// Sockets given to programs that cannot create any, while a gate is served.
    pairs: Option<socket_pairs::SocketPairs>,
    /// Number of connected daemons.
    hosts: usize,
}

impl Network {
    /// A daemon has connected.
    pub(crate) fn host_connected(&self) {
        self.state.borrow_mut().hosts += 1;
    }

    /// A daemon has disconnected.
    pub(crate) fn host_disconnected(&self) {
        self.state.borrow_mut().hosts -= 1;
        self.disconnected.notify_waiters();
    }

    fn begin(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.gate += 1;
        state.gate
    }

    /// The gate that is served.
    fn serving(&self) -> Option<Rc<Serving>> {
        self.state.borrow().serving.upgrade()
    }

    /// Whether no later gate is served.
    fn is_last(&self, gate: u64) -> bool {
        self.state.borrow().gate == gate
    }
}

/// Serves the gate whose stream this is, until it ends.
pub(crate) async fn gate(
    mut stream: Stream,
    agent: Shared,
    connections: Connections,
    descriptors: Option<DescriptorSender>,
) -> Result<(), FrameError> {
    let Some(hand_over) = HandOver::of(connections, descriptors) else {
        let failure = failure(FailureKind::NoDescriptorPassing, libc::EOPNOTSUPP);
        return write_message(&mut stream, &GateEvent::Failed(failure)).await;
    };
    match agent.mode.network {
        NetworkAccess::OwnNamespace => {}
        NetworkAccess::SocketPairs => return socket_pairs::serve(stream, agent, hand_over).await,
        NetworkAccess::None => {
            let failure = failure(FailureKind::NotInThisMode, libc::EOPNOTSUPP);
            return write_message(&mut stream, &GateEvent::Failed(failure)).await;
        }
    }
    let gate = agent.network.begin();
    let idle = agent.network.state.borrow_mut().idle.take();
    let socket = match idle {
        // With the queries that have arrived.
        Some(idle) => idle.into_socket(),
        // A gate that is being replaced takes a moment to release the address.
        None => match bind_names().await {
            Ok(socket) => Rc::new(socket),
            Err(error) => {
                let failed = failure(FailureKind::Other, error.raw_os_error().unwrap_or(0));
                return write_message(&mut stream, &GateEvent::Failed(failed)).await;
            }
        },
    };
    write_message(&mut stream, &GateEvent::Ready).await?;
    let (events, outgoing) = mpsc::channel(EVENT_QUEUE);
    let (from_host, to_host) = tokio::io::split(stream);
    let serving = Rc::new(Serving {
        agent: agent.clone(),
        socket,
        names: RefCell::new(NameAddresses::new(agent.clone(), events.clone())),
        last_question: Cell::new(0),
        queries: RefCell::default(),
        attempts: RefCell::default(),
        events,
    });
    agent.network.state.borrow_mut().serving = Rc::downgrade(&serving);
    agent.network.gate_served.notify_waiters();
    // The first to end ends all of them.
    let ended = tokio::select! {
        ended = send_events(to_host, outgoing, &agent, hand_over) => ended,
        ended = serving.receive(from_host) => ended,
        () = serving.answer_queries() => Ok(()),
    };
    // Open queries are answered now: programs must not wait for a host that is gone.
    serving.attempts.take();
    let socket = Rc::clone(&serving.socket);
    for (query, from) in serving.queries.take().into_values() {
        socket.send_to(&query.answered(dns::Answer::Failure), from).await.ok();
    }
    drop(serving);
    // Otherwise the address is released for the next gate.
    if agent.network.is_last(gate) {
        agent.network.waiting.clear();
        agent.network.state.borrow_mut().serving = Weak::new();
        idle_dns::listen_on(agent, socket);
    }
    ended
}

fn failure(kind: FailureKind, errno: i32) -> Failure {
    Failure { kind, errno, doing: "serve the network".into() }
}

async fn bind_names() -> std::io::Result<UdpSocket> {
    let address = SocketAddr::from((NAME_SERVER, NAME_PORT));
    let mut last = None;
    for _ in 0..50 {
        match UdpSocket::bind(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Err(last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()))
}

/// An event for the host, and the socket it is about with its cookie.
type Event = (GateEvent, Option<(u64, OwnedFd)>);

/// Sends events to the host.
async fn send_events(
    mut to_host: tokio::io::WriteHalf<Stream>,
    mut outgoing: mpsc::Receiver<Event>,
    agent: &Shared,
    hand_over: HandOver,
) -> Result<(), FrameError> {
    while let Some((event, socket)) = outgoing.recv().await {
        if let Some((cookie, socket)) = socket {
            match &hand_over {
                HandOver::Pass(descriptors) => descriptors.push(socket),
                HandOver::Carry => agent.network.waiting.insert(cookie, socket),
            }
        }
        write_message(&mut to_host, &event).await?;
    }
    Ok(())
}

/// How sockets of programs reach the host.
pub(crate) enum HandOver {
    /// They are passed beside the stream.
    Pass(DescriptorSender),
    /// Their bytes are carried on streams that the host opens.
    Carry,
}

impl HandOver {
    /// `None` when the host wants sockets to be passed and this link cannot.
    fn of(connections: Connections, descriptors: Option<DescriptorSender>) -> Option<Self> {
        match connections {
            Connections::Passed => descriptors.map(Self::Pass),
            Connections::Carried => Some(Self::Carry),
        }
    }
}

/// A query that waits for the host, and its sender.
type Waiting = (dns::Query, SocketAddr);

struct Serving {
    agent: Shared,
    socket: Rc<UdpSocket>,
    names: RefCell<NameAddresses>,
    last_question: Cell<u64>,
    queries: RefCell<HashMap<u64, Waiting>>,
    /// Programs that wait for the host's decision about a connection.
    attempts: RefCell<HashMap<u64, oneshot::Sender<bool>>>,
    events: mpsc::Sender<Event>,
}

impl Serving {
    /// Receives decisions of the host until the stream ends.
    async fn receive(&self, mut from_host: tokio::io::ReadHalf<Stream>) -> Result<(), FrameError> {
        while let Some(frame) = read_frame(&mut from_host).await? {
            let GateAnswer::Ports(GatePorts { question, ports }) = frame.decode()?;
            if let Some(attempt) = self.attempts.borrow_mut().remove(&question) {
                attempt.send(!ports.is_empty()).ok();
                continue;
            }
            let waiting = self.queries.borrow_mut().remove(&question);
            if let Some((query, from)) = waiting {
                let answer = if ports.is_empty() {
                    dns::Answer::Unknown
                } else {
                    self.names
                        .borrow_mut()
                        .serve(&query.name, &ports)
                        .map_or(dns::Answer::Failure, dns::Answer::Address)
                };
                self.socket.send_to(&query.answered(answer), from).await.ok();
            }
        }
        Ok(())
    }

    /// Receives queries of programs.
    async fn answer_queries(&self) {
        let mut buffer = [0; 1500];
        loop {
            // An error here is that of an answer whose port is closed; it does not concern the next query.
            let Ok((length, from)) = self.socket.recv_from(&mut buffer).await else {
                tokio::task::yield_now().await;
                continue;
            };
            let query = match dns::parse(&buffer[..length]) {
                dns::Parsed::Query(query) => query,
                dns::Parsed::Rejected(packet) => {
                    self.socket.send_to(&packet, from).await.ok();
                    continue;
                }
                dns::Parsed::Ignored => continue,
            };
            if self.queries.borrow().len() >= MAX_QUERIES {
                self.socket.send_to(&query.answered(dns::Answer::Failure), from).await.ok();
                continue;
            }
            let number = self.next_question();
            let run = attribution::of_peer(&self.agent, Protocol::Udp, from);
            let lookup = GateLookup { question: number, name: query.name.clone(), run };
            self.queries.borrow_mut().insert(number, (query, from));
            if self.events.send((GateEvent::Lookup(lookup), None)).await.is_err() {
                return;
            }
        }
    }
}

impl Serving {
    fn next_question(&self) -> u64 {
        self.last_question.update(|last| last + 1);
        self.last_question.get()
    }

    /// Asks the host about a connection before it is made; `None` when the gate has ended.
    async fn ask_connection(
        &self,
        host: &str,
        port: u16,
        datagram: bool,
        run: Option<String>,
    ) -> Option<oneshot::Receiver<bool>> {
        let question = self.next_question();
        let (answer, answered) = oneshot::channel();
        self.attempts.borrow_mut().insert(question, answer);
        let attempt = GateAttempt { question, host: host.to_owned(), port, datagram, run };
        self.events.send((GateEvent::Attempt(attempt), None)).await.ok()?;
        Some(answered)
    }
}

/// Reports a connection to the host; `None` when the gate has ended.
async fn announce(
    agent: &Shared,
    events: &mpsc::Sender<Event>,
    socket: OwnedFd,
    host: &str,
    port: u16,
) -> Option<()> {
    let Ok(number) = socket_cookie(&socket) else { return Some(()) };
    let peer = rustix::net::getpeername(&socket).ok().flatten();
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    let run = peer.and_then(|peer| attribution::of_peer(agent, Protocol::Tcp, peer));
    let opened = GateOpened { socket: number, host: host.to_owned(), port, run };
    events.send((GateEvent::Opened(opened), Some((number, socket)))).await.ok()
}
