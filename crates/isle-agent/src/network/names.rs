//! Addresses for names: each granted name that was looked up has one, and its granted ports listen.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use isle_wire::GateEvent;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::announce;
use crate::serve::Shared;

/// Names that have an address at once: a wildcard covers more than anybody needs.
const MOST_NAMES: usize = 512;
/// Ports that listen at once, over all names: each is a descriptor.
const MOST_PORTS: usize = 1024;
/// Connections the kernel holds until they are accepted.
const BACKLOG: i32 = 128;
/// The first address for names.
const FIRST: u32 = u32::from_be_bytes([198, 18, 1, 0]);

pub(super) struct Names {
    agent: Shared,
    events: mpsc::Sender<GateEvent>,
    known: HashMap<String, Named>,
    /// Dropped with this, and with them the sockets.
    listening: JoinSet<()>,
}

struct Named {
    address: Ipv4Addr,
    ports: Vec<u16>,
}

impl Names {
    pub(super) fn new(agent: Shared, events: mpsc::Sender<GateEvent>) -> Self {
        Self { agent, events, known: HashMap::new(), listening: JoinSet::new() }
    }

    /// The address of a name, with these ports listening; `None` when there is no room for more, or a
    /// program of the sandbox has all of the ports itself.
    pub(super) fn serve(&mut self, name: &str, ports: &[u16]) -> Option<Ipv4Addr> {
        let name = name.to_ascii_lowercase();
        if !self.known.contains_key(&name) && self.known.len() >= MOST_NAMES {
            return None;
        }
        let next = FIRST + u32::try_from(self.known.len()).ok()?;
        let named = self
            .known
            .entry(name.clone())
            .or_insert_with(|| Named { address: Ipv4Addr::from(next), ports: Vec::new() });
        for &port in ports {
            if named.ports.contains(&port) || self.listening.len() >= MOST_PORTS {
                continue;
            }
            // A port that a program of the sandbox holds on every address is its own.
            let Ok(listener) = listen(SocketAddr::from((named.address, port))) else { continue };
            named.ports.push(port);
            let (agent, events, name) = (self.agent.clone(), self.events.clone(), name.clone());
            self.listening.spawn_local(async move {
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => {
                            stream.set_nodelay(true).ok();
                            if announce(&agent, &events, stream, &name, port).await.is_none() {
                                return;
                            }
                        }
                        // Out of descriptors: those that end make room.
                        Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                    }
                }
            });
        }
        (!named.ports.is_empty()).then_some(named.address)
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    TcpListener::from_std(std::net::TcpListener::from(socket))
}
