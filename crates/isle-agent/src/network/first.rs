//! Questions about names while no gate is served. Most sandboxes never ask for a name, and a gate would
//! cost each of them time; so the host is told of the first question, and serves a gate then.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use isle_linux::setup::network::NAME_SERVER;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

use super::{NAME_PORT, Serving, dns};
use crate::place;
use crate::runs::RunKind;
use crate::serve::Shared;

/// How long the host may take to serve a gate before questions are answered without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where questions arrive while no gate is served, and who waits for them.
pub(super) struct Idle {
    socket: Rc<UdpSocket>,
    listening: AbortHandle,
}

impl Idle {
    /// The socket, for a gate.
    pub(super) fn taken(self) -> Rc<UdpSocket> {
        self.listening.abort();
        self.socket
    }
}

/// Listens for questions until a gate is served. Among the host's processes there is nothing to listen on.
pub(crate) fn listen_for_questions(agent: Shared) {
    if place::private().is_some() {
        return;
    }
    // Whoever cannot be heard now is heard when something is granted.
    let Ok(socket) = std::net::UdpSocket::bind(SocketAddr::from((NAME_SERVER, NAME_PORT))) else { return };
    let Ok(socket) = socket.set_nonblocking(true).and_then(|()| UdpSocket::from_std(socket)) else { return };
    listen_on(agent, Rc::new(socket));
}

/// The same on a socket that is there already, with the questions that have arrived.
pub(super) fn listen_on(agent: Shared, socket: Rc<UdpSocket>) {
    let listening = tokio::task::spawn_local(listen(agent.clone(), Rc::clone(&socket))).abort_handle();
    agent.network.state.borrow_mut().idle = Some(Idle { socket, listening });
}

/// Ends when a gate takes the socket.
async fn listen(agent: Shared, socket: Rc<UdpSocket>) {
    while socket.readable().await.is_ok() {
        if tell(&agent) {
            tokio::select! {
                () = tokio::time::sleep(PATIENCE) => {}
                () = agent.network.left.notified() => {}
            }
        }
        refuse(&socket).await;
    }
}

/// Tells the host, on the stream of every run; `false` when nobody would hear it.
fn tell(agent: &Shared) -> bool {
    if agent.network.state.borrow().hosts == 0 {
        return false;
    }
    let mut heard = false;
    for run in agent.runs.living().into_iter().filter(|run| run.kind == RunKind::Asked) {
        let mut state = run.state.borrow_mut();
        heard |= !state.followers.is_empty();
        state.asked += 1;
        drop(state);
        run.changed.notify_waiters();
    }
    heard
}

/// The gate, once the host serves it for whoever wants to connect; `None` when it does not.
pub(super) async fn served(agent: &Shared) -> Option<Rc<Serving>> {
    let came = agent.network.came.notified();
    let mut came = std::pin::pin!(came);
    came.as_mut().enable();
    if let Some(serving) = agent.network.serving() {
        return Some(serving);
    }
    if !tell(agent) {
        return None;
    }
    tokio::select! {
        () = came => agent.network.serving(),
        () = tokio::time::sleep(PATIENCE) => None,
        () = agent.network.left.notified() => None,
    }
}

/// Answers what has arrived: nobody can say anything about it.
async fn refuse(socket: &UdpSocket) {
    let mut buffer = [0; 1500];
    while let Ok((length, from)) = socket.try_recv_from(&mut buffer) {
        let packet = match dns::read(&buffer[..length]) {
            dns::Read::Question(question) => question.answered(dns::Answer::Failure),
            dns::Read::Refusal(packet) => packet,
            dns::Read::Nothing => continue,
        };
        socket.send_to(&packet, from).await.ok();
    }
}
