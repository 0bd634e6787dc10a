//! The network of a sandbox, seen from inside. Programs find a name server and, behind every granted
//! name, an address of the sandbox's own loopback; the sockets of what they connect there are handed to the
//! host. Where they share the host's network, they find a proxy instead (`pairs`). The agent knows no policy
//! and carries no bytes: names and connections are decided by the host, one by one, and when the host's
//! stream ends, so does all of this.

mod address;
mod attempts;
mod connect;
mod dial;
mod dns;
mod first;
mod names;
mod pairs;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use isle_linux::setup::network::NAME_SERVER;
use isle_wire::{
    FrameError, GateAnswer, GateAttempt, GateEvent, GateLookup, GateOpened, GatePorts, Outbox, Stream,
    read_frame, socket_number, write_message,
};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::place;
use crate::serve::Shared;
use names::Names;

pub(crate) use attempts::attempt;
pub(crate) use dial::dial;
pub(crate) use first::listen_for_questions;
pub(crate) use pairs::answer;

const NAME_PORT: u16 = 53;
/// Questions that wait for the host.
const MOST_QUESTIONS: usize = 512;
/// Messages, and the sockets some of them speak of, that wait to be sent to the host.
const DEPTH: usize = 256;

/// What the streams of the network share.
#[derive(Default)]
pub(crate) struct Network {
    state: RefCell<State>,
    /// A daemon has left.
    left: Notify,
    /// A gate is served.
    came: Notify,
    /// Programs that wait to be told whether they may connect.
    attempting: Cell<usize>,
}

#[derive(Default)]
struct State {
    /// Which gate is served: a later one takes the place of an earlier one.
    turn: u64,
    /// Where questions arrive while no gate is served.
    idle: Option<first::Idle>,
    /// The gate that is served.
    serving: Weak<Serving>,
    /// Sockets that were given, while a gate is served where nobody has any.
    pairs: Option<pairs::Pairs>,
    /// Daemons that are connected.
    hosts: usize,
}

impl Network {
    /// A daemon has connected, or left.
    pub(crate) fn host_came(&self) {
        self.state.borrow_mut().hosts += 1;
    }

    pub(crate) fn host_left(&self) {
        self.state.borrow_mut().hosts -= 1;
        self.left.notify_waiters();
    }

    fn begin(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.turn += 1;
        state.turn
    }

    /// The gate that is served.
    fn serving(&self) -> Option<Rc<Serving>> {
        self.state.borrow().serving.upgrade()
    }

    /// Whether no later gate is served.
    fn is_last(&self, turn: u64) -> bool {
        self.state.borrow().turn == turn
    }
}

/// Serves the gate whose stream this is, until it ends.
pub(crate) async fn gate(mut stream: Stream, agent: Shared, outbox: Outbox) -> Result<(), FrameError> {
    if place::private().is_some() {
        return pairs::serve(stream, agent, outbox).await;
    }
    let turn = agent.network.begin();
    let idle = agent.network.state.borrow_mut().idle.take();
    let socket = match idle {
        // With the questions that have arrived.
        Some(idle) => idle.taken(),
        // One that is being replaced needs a moment to let go of the address.
        None => match bind_names().await {
            Ok(socket) => Rc::new(socket),
            Err(error) => return write_message(&mut stream, &GateEvent::Failed(error.to_string())).await,
        },
    };
    write_message(&mut stream, &GateEvent::Ready).await?;
    let (events, outgoing) = mpsc::channel(DEPTH);
    let (from_host, to_host) = tokio::io::split(stream);
    let serving = Rc::new(Serving {
        socket,
        names: RefCell::new(Names::new(events.clone())),
        last_question: Cell::new(0),
        questions: RefCell::default(),
        attempts: RefCell::default(),
        events,
    });
    agent.network.state.borrow_mut().serving = Rc::downgrade(&serving);
    agent.network.came.notify_waiters();
    // Whichever ends first ends them all.
    let ended = tokio::select! {
        ended = tell(to_host, outgoing, outbox) => ended,
        ended = serving.hear(from_host) => ended,
        () = serving.answer() => Ok(()),
    };
    // What was asked and not answered has an answer now: nobody waits for a host that is gone.
    serving.attempts.take();
    let socket = Rc::clone(&serving.socket);
    for (question, from) in serving.questions.take().into_values() {
        socket.send_to(&question.answered(dns::Answer::Failure), from).await.ok();
    }
    drop(serving);
    // Else the address is free again for whoever is next.
    if agent.network.is_last(turn) {
        agent.network.state.borrow_mut().serving = Weak::new();
        first::listen_on(agent, socket);
    }
    ended
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

/// Something to tell the host, and the socket it speaks of.
type Told = (GateEvent, Option<OwnedFd>);

/// Sends the host what there is to tell.
async fn tell(
    mut to_host: tokio::io::WriteHalf<Stream>,
    mut outgoing: mpsc::Receiver<Told>,
    outbox: Outbox,
) -> Result<(), FrameError> {
    while let Some((event, socket)) = outgoing.recv().await {
        if let Some(socket) = socket {
            outbox.put(socket);
        }
        write_message(&mut to_host, &event).await?;
    }
    Ok(())
}

/// A question that waits for the host, and who asked.
type Waiting = (dns::Question, SocketAddr);

struct Serving {
    socket: Rc<UdpSocket>,
    names: RefCell<Names>,
    last_question: Cell<u64>,
    questions: RefCell<HashMap<u64, Waiting>>,
    /// Programs that wait for the host's word on a connection.
    attempts: RefCell<HashMap<u64, oneshot::Sender<bool>>>,
    events: mpsc::Sender<Told>,
}

impl Serving {
    /// Hears the host until it leaves.
    async fn hear(&self, mut from_host: tokio::io::ReadHalf<Stream>) -> Result<(), FrameError> {
        while let Some(frame) = read_frame(&mut from_host).await? {
            let GateAnswer::Ports(GatePorts { question, ports }) = frame.decode()?;
            if let Some(attempt) = self.attempts.borrow_mut().remove(&question) {
                attempt.send(!ports.is_empty()).ok();
                continue;
            }
            let waiting = self.questions.borrow_mut().remove(&question);
            if let Some((question, from)) = waiting {
                let answer = if ports.is_empty() {
                    dns::Answer::Unknown
                } else {
                    self.names
                        .borrow_mut()
                        .serve(&question.name, &ports)
                        .map_or(dns::Answer::Failure, dns::Answer::Address)
                };
                self.socket.send_to(&question.answered(answer), from).await.ok();
            }
        }
        Ok(())
    }

    /// Takes questions of programs.
    async fn answer(&self) {
        let mut buffer = [0; 1500];
        loop {
            // An error here is that of an answer that found nobody; the next question is none the worse.
            let Ok((length, from)) = self.socket.recv_from(&mut buffer).await else {
                tokio::task::yield_now().await;
                continue;
            };
            let question = match dns::read(&buffer[..length]) {
                dns::Read::Question(question) => question,
                dns::Read::Refusal(packet) => {
                    self.socket.send_to(&packet, from).await.ok();
                    continue;
                }
                dns::Read::Nothing => continue,
            };
            if self.questions.borrow().len() >= MOST_QUESTIONS {
                self.socket.send_to(&question.answered(dns::Answer::Failure), from).await.ok();
                continue;
            }
            let number = self.next_question();
            let lookup = GateLookup { question: number, name: question.name.clone() };
            self.questions.borrow_mut().insert(number, (question, from));
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

    /// Asks the host about a connection before it is made; `None` when nobody hears.
    async fn ask_connection(&self, host: &str, port: u16, datagram: bool) -> Option<oneshot::Receiver<bool>> {
        let question = self.next_question();
        let (answer, answered) = oneshot::channel();
        self.attempts.borrow_mut().insert(question, answer);
        let attempt = GateAttempt { question, host: host.to_owned(), port, datagram };
        self.events.send((GateEvent::Attempt(attempt), None)).await.ok()?;
        Some(answered)
    }
}

/// Tells the host of a connection; `None` when nobody hears.
async fn announce(events: &mpsc::Sender<Told>, socket: OwnedFd, host: &str, port: u16) -> Option<()> {
    let Ok(number) = socket_number(&socket) else { return Some(()) };
    let opened = GateOpened { socket: number, host: host.to_owned(), port };
    events.send((GateEvent::Opened(opened), Some(socket))).await.ok()
}
