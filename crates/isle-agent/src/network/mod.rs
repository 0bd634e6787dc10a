//! The network of a sandbox, seen from inside. Programs find a name server and, behind every granted
//! name, an address of the sandbox's own loopback; what they connect there is handed to the host. The
//! agent knows no policy: names and connections are decided by the host, one by one, and when the
//! host's stream ends, so does all of this.

mod dial;
mod dns;
mod first;
mod names;
mod take;

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use isle_linux::setup::network::NAME_SERVER;
use isle_wire::{
    FrameError, GateAnswer, GateEvent, GateLookup, GateOpened, GatePorts, Stream, read_frame, write_message,
};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::serve::Shared;
use names::Names;

pub(crate) use dial::dial;
pub(crate) use first::listen_for_questions;
pub(crate) use take::take;

const NAME_PORT: u16 = 53;
/// Questions that wait for the host.
const MOST_QUESTIONS: usize = 512;
/// Connections that wait for the host.
const MOST_WAITING: usize = 1024;
/// Messages that wait to be sent to the host.
const DEPTH: usize = 256;

/// What the streams of the network share.
#[derive(Default)]
pub(crate) struct Network {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Which gate is served: a later one takes the place of an earlier one.
    turn: u64,
    last_connection: u64,
    /// Connected, and not yet taken by the host.
    waiting: HashMap<u64, TcpStream>,
    /// Taken: how to reset them.
    taken: HashMap<u64, AbortHandle>,
    /// Where questions arrive while no gate is served.
    idle: Option<first::Idle>,
    /// Daemons that are connected.
    hosts: usize,
}

impl Network {
    /// A connection was opened: it waits for the host.
    fn opened(&self, stream: TcpStream) -> Option<u64> {
        let mut state = self.state.borrow_mut();
        if state.waiting.len() >= MOST_WAITING {
            return None;
        }
        state.last_connection += 1;
        let connection = state.last_connection;
        state.waiting.insert(connection, stream);
        Some(connection)
    }

    /// Resets a connection.
    fn reset(&self, connection: u64) {
        let mut state = self.state.borrow_mut();
        if let Some(stream) = state.waiting.remove(&connection) {
            take::reset(stream);
        }
        if let Some(task) = state.taken.remove(&connection) {
            task.abort();
        }
    }

    /// A daemon has connected, or left.
    pub(crate) fn host_came(&self) {
        self.state.borrow_mut().hosts += 1;
    }

    pub(crate) fn host_left(&self) {
        self.state.borrow_mut().hosts -= 1;
    }

    fn begin(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.turn += 1;
        state.turn
    }

    /// Ends what belongs to a gate, unless a later one is served already. Whether it was the last.
    fn end(&self, turn: u64) -> bool {
        let mut state = self.state.borrow_mut();
        if state.turn != turn {
            return false;
        }
        for (_, stream) in state.waiting.drain() {
            take::reset(stream);
        }
        for (_, task) in state.taken.drain() {
            task.abort();
        }
        true
    }
}

/// Serves the gate whose stream this is, until it ends.
pub(crate) async fn gate(mut stream: Stream, agent: Shared) -> Result<(), FrameError> {
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
    let serving = Serving {
        agent: agent.clone(),
        socket,
        names: RefCell::new(Names::new(agent.clone(), events.clone())),
        questions: RefCell::default(),
        events,
    };
    // Whichever ends first ends them all.
    let ended = tokio::select! {
        ended = tell(to_host, outgoing) => ended,
        ended = serving.hear(from_host) => ended,
        () = serving.answer() => Ok(()),
    };
    let was_last = agent.network.end(turn);
    // The address is free again for whoever is next.
    drop(serving);
    if was_last {
        listen_for_questions(agent);
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

/// Sends the host what there is to tell.
async fn tell(
    mut to_host: tokio::io::WriteHalf<Stream>,
    mut outgoing: mpsc::Receiver<GateEvent>,
) -> Result<(), FrameError> {
    while let Some(event) = outgoing.recv().await {
        write_message(&mut to_host, &event).await?;
    }
    Ok(())
}

/// A question that waits for the host, and who asked.
type Waiting = (dns::Question, SocketAddr);

struct Serving {
    agent: Shared,
    socket: Rc<UdpSocket>,
    names: RefCell<Names>,
    questions: RefCell<HashMap<u64, Waiting>>,
    events: mpsc::Sender<GateEvent>,
}

impl Serving {
    /// Hears the host until it leaves.
    async fn hear(&self, mut from_host: tokio::io::ReadHalf<Stream>) -> Result<(), FrameError> {
        while let Some(frame) = read_frame(&mut from_host).await? {
            match frame.decode::<GateAnswer>()? {
                GateAnswer::Ports(GatePorts { question, ports }) => {
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
                GateAnswer::Reset(connection) => self.agent.network.reset(connection),
            }
        }
        Ok(())
    }

    /// Takes questions of programs.
    async fn answer(&self) {
        let mut buffer = [0; 1500];
        let mut number = 0;
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
            number += 1;
            let lookup = GateLookup { question: number, name: question.name.clone() };
            self.questions.borrow_mut().insert(number, (question, from));
            if self.events.send(GateEvent::Lookup(lookup)).await.is_err() {
                return;
            }
        }
    }
}

/// Tells the host of a connection; `None` when nobody hears.
async fn announce(
    agent: &Shared,
    events: &mpsc::Sender<GateEvent>,
    stream: TcpStream,
    host: &str,
    port: u16,
) -> Option<()> {
    // One more than can wait is turned away by being dropped.
    let Some(connection) = agent.network.opened(stream) else { return Some(()) };
    let opened = GateOpened { connection, host: host.to_owned(), port };
    events.send(GateEvent::Opened(opened)).await.ok()
}
