//! DNS queries while no gate is served. Most sandboxes never look up a name, and a gate would cost each of
//! them time; so the host is notified of the first query, and serves a gate then.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use isle_setup::network::NAME_SERVER;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

use super::{NAME_PORT, Serving, dns};
use crate::mode::NetworkAccess;
use crate::run::RunKind;
use crate::serve::Shared;

/// Timeout for the host to serve a gate before queries are answered without it.
const GATE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where queries arrive while no gate is served, and the task that waits for them.
pub(super) struct Idle {
    socket: Rc<UdpSocket>,
    listening: AbortHandle,
}

impl Idle {
    /// The socket, for a gate.
    pub(super) fn into_socket(self) -> Rc<UdpSocket> {
        self.listening.abort();
        self.socket
    }
}

/// Listens for queries until a gate is served, where the agent is the name server.
pub(crate) fn listen_for_queries(agent: Shared) {
    if agent.mode.network != NetworkAccess::OwnNamespace {
        return;
    }
    // Without a socket queries are answered once a gate is served.
    let Ok(socket) = std::net::UdpSocket::bind(SocketAddr::from((NAME_SERVER, NAME_PORT))) else { return };
    let Ok(socket) = socket.set_nonblocking(true).and_then(|()| UdpSocket::from_std(socket)) else { return };
    listen_on(agent, Rc::new(socket));
}

/// The same on an existing socket, with the queries that have arrived.
pub(super) fn listen_on(agent: Shared, socket: Rc<UdpSocket>) {
    let listening = tokio::task::spawn_local(listen(agent.clone(), Rc::clone(&socket))).abort_handle();
    agent.network.state.borrow_mut().idle = Some(Idle { socket, listening });
}

/// Aborted when a gate takes the socket.
async fn listen(agent: Shared, socket: Rc<UdpSocket>) {
    while socket.readable().await.is_ok() {
        if notify(&agent) {
            tokio::select! {
                () = tokio::time::sleep(GATE_TIMEOUT) => {}
                () = agent.network.disconnected.notified() => {}
            }
        }
        reject_all(&socket).await;
    }
}

/// Notifies the host on the stream of every run; `false` when there is no such stream.
fn notify(agent: &Shared) -> bool {
    if agent.network.state.borrow().hosts == 0 {
        return false;
    }
    let mut notified = false;
    for run in agent.runs.active().into_iter().filter(|run| run.kind == RunKind::Requested) {
        let mut state = run.state.borrow_mut();
        notified |= !state.followers.is_empty();
        state.name_lookups += 1;
        drop(state);
        run.changed.notify_waiters();
    }
    notified
}

/// The gate, once the host serves it; `None` when it does not.
pub(super) async fn served(agent: &Shared) -> Option<Rc<Serving>> {
    let served = agent.network.gate_served.notified();
    let mut served = std::pin::pin!(served);
    served.as_mut().enable();
    if let Some(serving) = agent.network.serving() {
        return Some(serving);
    }
    if !notify(agent) {
        return None;
    }
    tokio::select! {
        () = served => agent.network.serving(),
        () = tokio::time::sleep(GATE_TIMEOUT) => None,
        () = agent.network.disconnected.notified() => None,
    }
}

/// Answers all queries that have arrived with a failure.
async fn reject_all(socket: &UdpSocket) {
    let mut buffer = [0; 1500];
    while let Ok((length, from)) = socket.try_recv_from(&mut buffer) {
        let packet = match dns::parse(&buffer[..length]) {
            dns::Parsed::Query(query) => query.answered(dns::Answer::Failure),
            dns::Parsed::Rejected(packet) => packet,
            dns::Parsed::Ignored => continue,
        };
        socket.send_to(&packet, from).await.ok();
    }
}
