//! Addresses for names: each granted name that was looked up has one, and its granted ports listen.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Event, announce};
use crate::serve::Shared;

/// Maximum number of names with an address: a wildcard covers more than is needed.
const MAX_NAMES: usize = 512;
/// Maximum number of listening ports over all names: each is a descriptor.
const MAX_PORTS: usize = 1024;
/// Connections the kernel queues until they are accepted.
const BACKLOG: i32 = 128;
/// The first address for names.
const FIRST: u32 = u32::from_be_bytes([198, 18, 1, 0]);

pub(super) struct NameAddresses {
    agent: Shared,
    events: mpsc::Sender<Event>,
    known: HashMap<String, Named>,
    /// Names in the order of their addresses.
    order: Vec<String>,
    /// Accepting tasks, which own the listening sockets.
    listening: JoinSet<()>,
}

struct Named {
    address: Ipv4Addr,
    ports: Vec<u16>,
}

impl NameAddresses {
    pub(super) fn new(agent: Shared, events: mpsc::Sender<Event>) -> Self {
        Self { agent, events, known: HashMap::new(), order: Vec::new(), listening: JoinSet::new() }
    }

    /// The address of a name, with these ports listening; `None` when there is no room for more, or a
    /// program of the sandbox has all of the ports itself.
    pub(super) fn serve(&mut self, name: &str, ports: &[u16]) -> Option<Ipv4Addr> {
        let name = name.to_ascii_lowercase();
        if !self.known.contains_key(&name) && self.known.len() >= MAX_NAMES {
            return None;
        }
        let next = FIRST + u32::try_from(self.order.len()).ok()?;
        let named = self.known.entry(name.clone()).or_insert_with(|| {
            self.order.push(name.clone());
            Named { address: Ipv4Addr::from(next), ports: Vec::new() }
        });
        for &port in ports {
            if named.ports.contains(&port) || self.listening.len() >= MAX_PORTS {
                continue;
            }
            // A port that a program of the sandbox has bound on every address stays its own.
            let Ok(listener) = listen(SocketAddr::from((named.address, port))) else { continue };
            named.ports.push(port);
            let (agent, events, name) = (self.agent.clone(), self.events.clone(), name.clone());
            self.listening.spawn_local(async move {
                loop {
                    match listener.async_io(Interest::READABLE, accept).await {
                        Ok(socket) => {
                            if announce(&agent, &events, socket, &name, port).await.is_none() {
                                return;
                            }
                        }
                        // Out of descriptors: those that are passed to the host are freed soon.
                        Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                }
            });
        }
        (!named.ports.is_empty()).then_some(named.address)
    }

    /// The name that has this address, and whether the agent listens on this port of it.
    pub(super) fn name_at(&self, address: Ipv4Addr, port: u16) -> Option<(String, bool)> {
        let place = usize::try_from(address.to_bits().checked_sub(FIRST)?).ok()?;
        let name = self.order.get(place)?;
        Some((name.clone(), self.known.get(name)?.ports.contains(&port)))
    }
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn listen(address: SocketAddr) -> std::io::Result<AsyncFd<OwnedFd>> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    // SAFETY: an owned descriptor stays the same and open until it is dropped, which the result does.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }.map_err(Into::into)
}

/// Accepts a connection. The program sees it reset if the host does not take it.
fn accept(listener: &OwnedFd) -> std::io::Result<OwnedFd> {
    let socket = rustix::net::accept_with(listener, FLAGS)?;
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    Ok(socket)
}
