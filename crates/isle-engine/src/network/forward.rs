//! Ports of a sandbox on this host's loopback: a listener per port, each connection a stream to the
//! agent, which connects to the program inside.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::Ports;
use super::port_streams::{ConnectionSlot, PortCount, PortCounts, PortStream, has_ports};

use crate::context::CallContext;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use isle_core::values::{Address, SandboxId};
use isle_core::{Code, Error, Result};

/// Ports one sandbox may have on the host.
const MOST_PORTS: usize = 64;
/// How often it is tried whether something listens.
const LOOK: Duration = Duration::from_millis(50);

/// One port of a sandbox on this host.
#[derive(Debug)]
pub(crate) struct Forward {
    address: Address,
    pub(crate) port: u16,
    pub(crate) host_port: u16,
    incarnation: SandboxId,
    counts: Arc<PortCounts>,
    ended: CancellationToken,
}

impl Forward {
    /// What went over it.
    pub(crate) fn count(&self) -> PortCount {
        self.counts.now()
    }
}

/// All ports of sandboxes on this host.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    known: Mutex<HashMap<u16, Arc<Forward>>>,
    /// All ports there ever were here, together.
    pub(crate) exposed: Arc<PortCounts>,
    /// All that went through the HTTP door.
    pub(crate) proxied: Arc<PortCounts>,
    /// All that went from sandbox to sandbox.
    pub(crate) peers: Arc<PortCounts>,
}

impl Forwards {
    /// Those of a sandbox.
    pub(crate) fn of(&self, sandbox: &Sandbox) -> Vec<Arc<Forward>> {
        let address = sandbox.address();
        let mut found: Vec<_> =
            crate::lock(&self.known).values().filter(|one| one.address == address).cloned().collect();
        found.sort_by_key(|one| (one.port, one.host_port));
        found
    }
}

impl Ports {
    /// Shows a port of a sandbox on this host's loopback. The same asked for again is the answer.
    pub(crate) async fn expose(
        self: &Arc<Self>,
        context: &CallContext,
        sandbox: &Arc<Sandbox>,
        port: u16,
        host_port: Option<u16>,
    ) -> Result<Arc<Forward>> {
        if !self.child_can_expose(sandbox) {
            sandbox.refuse_child("port on the host")?;
        }
        has_ports(sandbox)?;
        let there = self.forwards.of(sandbox);
        let same = |one: &&Arc<Forward>| {
            one.port == port
                && one.incarnation == sandbox.id
                && host_port.is_none_or(|wanted| wanted == 0 || wanted == one.host_port)
        };
        if let Some(one) = there.iter().find(same) {
            return Ok(Arc::clone(one));
        }
        if there.len() >= MOST_PORTS {
            return Err(Error::new(
                Code::LimitReached,
                format!("a sandbox has at most {MOST_PORTS} ports here"),
            )
            .next("take some back with `unexpose`"));
        }
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, host_port.unwrap_or(port)));
        let listener =
            TcpListener::bind(wanted).await.map_err(|error| self.taken(sandbox, wanted.port(), &error))?;
        let host_port = listener.local_addr().map_err(Error::internal)?.port();
        let forward = Arc::new(Forward {
            address: sandbox.address(),
            port,
            host_port,
            incarnation: sandbox.id.clone(),
            counts: Arc::default(),
            ended: self.tasks.halted().child_token(),
        });
        let detail = json!({ "port": port, "host_port": host_port });
        self.journal.audit(&Audit::files(context, "expose", sandbox, detail))?;
        crate::lock(&self.forwards.known).insert(host_port, Arc::clone(&forward));
        let (ports, sandbox, serving) = (Arc::downgrade(self), Arc::clone(sandbox), Arc::clone(&forward));
        let all = Arc::clone(&self.forwards.exposed);
        tokio::spawn(async move {
            serve(listener, &sandbox, &serving, &all).await;
            if let Some(ports) = ports.upgrade() {
                let mut known = crate::lock(&ports.forwards.known);
                if known.get(&serving.host_port).is_some_and(|one| Arc::ptr_eq(one, &serving)) {
                    known.remove(&serving.host_port);
                }
            }
        });
        Ok(forward)
    }

    /// Whether the policy of its tree lets the ports of a child be forwarded.
    fn child_can_expose(&self, sandbox: &Sandbox) -> bool {
        let policy = self.config.spawn_policies.of(&sandbox.root());
        sandbox.child_of().is_some() && policy.is_some_and(|policy| policy.child_can_expose)
    }

    fn taken(&self, sandbox: &Sandbox, port: u16, error: &std::io::Error) -> Error {
        let owner = crate::lock(&self.forwards.known).get(&port).map(|one| one.address.clone());
        // Of other namespaces nothing is told, not even that they are there.
        let owner =
            owner.filter(|owner| owner.namespace == sandbox.address().namespace).map(|owner| owner.name);
        let message = match &owner {
            Some(owner) => format!("port {port} of this host is that of the sandbox {owner} already"),
            None => format!("port {port} of this host cannot be had: {error}"),
        };
        Error::new(Code::PortTaken, message)
            .detail("host_port", port)
            .next("choose another host_port, or 0 for any that is free")
    }

    /// Takes a port of a sandbox back; its connections end.
    pub(crate) fn unexpose(&self, context: &CallContext, sandbox: &Sandbox, port: u16) -> Result<Vec<u16>> {
        let found: Vec<_> = self.forwards.of(sandbox).into_iter().filter(|one| one.port == port).collect();
        if found.is_empty() {
            let ports: Vec<u16> = self.forwards.of(sandbox).iter().map(|one| one.port).collect();
            return Err(Error::new(
                Code::PortNotFound,
                format!("port {port} of {} is not shown on this host", sandbox.name),
            )
            .detail("ports", ports)
            .next("name one of those in `details`"));
        }
        self.journal.audit(&Audit::files(context, "unexpose", sandbox, json!({ "port": port })))?;
        let mut known = crate::lock(&self.forwards.known);
        for one in &found {
            one.ended.cancel();
            known.remove(&one.host_port);
        }
        Ok(found.iter().map(|one| one.host_port).collect())
    }

    /// Waits until something listens on a port of a sandbox; whether it does is the answer.
    pub(crate) async fn wait_for_port(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        port: u16,
        within: Duration,
    ) -> Result<bool> {
        has_ports(sandbox)?;
        let deadline = tokio::time::Instant::now() + within;
        loop {
            if sandbox.agent()?.dial(port).await?.is_some() {
                return Ok(true);
            }
            if tokio::time::Instant::now() >= deadline {
                return Ok(false);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = context.cancelled.cancelled() => return Err(crate::pipeline::cancelled()),
            }
        }
    }
}

/// Serves a port until it is taken back or its sandbox ends.
async fn serve(listener: TcpListener, sandbox: &Arc<Sandbox>, forward: &Arc<Forward>, all: &Arc<PortCounts>) {
    let gone = async {
        match sandbox.agent() {
            Ok(agent) => agent.closed().await,
            Err(_) => std::future::ready(()).await,
        }
    };
    tokio::pin!(gone);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = forward.ended.cancelled() => return,
            () = &mut gone => return,
        };
        while connections.try_join_next().is_some() {}
        let Ok((socket, _)) = accepted else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        // One too many is turned away by being dropped.
        let Some(slot) = ConnectionSlot::take(&forward.counts, all) else { continue };
        let (sandbox, port) = (Arc::clone(sandbox), forward.port);
        connections.spawn(async move {
            if let Ok(Some(stream)) = slot.dial(&sandbox, port).await {
                carry(socket, stream).await;
            }
        });
    }
}

async fn carry(mut socket: TcpStream, mut stream: PortStream) {
    socket.set_nodelay(true).ok();
    tokio::io::copy_bidirectional_with_sizes(&mut socket, &mut stream, 64 * 1024, 64 * 1024).await.ok();
}
