//! Connections from this host to ports of a sandbox: counted, capped, and a use of the sandbox for as
//! long as they are open. The agent connects; nothing but the sandbox's own loopback is within its reach.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Ports;
use crate::context::CallContext;
use crate::journal::Audit;
use crate::sandbox::{InUse, Sandbox};
use isle_core::backend::GuestNetwork;
use isle_core::{Code, Error, Result};

/// Connections that may be open to one port shown on the host, and to all ports of a sandbox by way of
/// the HTTP door.
pub(crate) const MOST_OPEN: u64 = 256;

/// Who used which port of a sandbox through the HTTP door first: more are not remembered.
const MOST_CALLERS: usize = 256;

/// What went over ports.
#[derive(Debug, Default)]
pub(crate) struct PortCounts {
    connections: AtomicU64,
    open: AtomicU64,
    refused: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// The same at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PortCount {
    /// Connections so far.
    pub(crate) connections: u64,
    /// Of those, open now.
    pub(crate) open: u64,
    /// Connections that found nobody, or one too many.
    pub(crate) refused: u64,
    /// Bytes from the sandbox.
    pub(crate) sent: u64,
    /// Bytes to the sandbox.
    pub(crate) received: u64,
}

impl PortCounts {
    pub(crate) fn now(&self) -> PortCount {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PortCount {
            connections: load(&self.connections),
            open: load(&self.open),
            refused: load(&self.refused),
            sent: load(&self.sent),
            received: load(&self.received),
        }
    }
}

/// Ports of a sandbox by way of the HTTP door.
#[derive(Debug, Default)]
pub(crate) struct Proxied {
    pub(crate) counts: Arc<PortCounts>,
    callers: Mutex<BTreeSet<(String, u16)>>,
}

impl Proxied {
    /// Whether this caller uses this port for the first time.
    fn is_new(&self, actor: &str, port: u16) -> bool {
        let mut callers = crate::lock(&self.callers);
        let caller = (actor.to_owned(), port);
        !callers.contains(&caller) && (callers.len() >= MOST_CALLERS || callers.insert(caller))
    }
}

fn add(counts: &[Arc<PortCounts>], counter: fn(&PortCounts) -> &AtomicU64, by: u64) {
    for each in counts {
        counter(each).fetch_add(by, Ordering::Relaxed);
    }
}

/// One of the connections that may be open: of one port, or one sandbox, and of all.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    counts: [Arc<PortCounts>; 2],
}

impl ConnectionSlot {
    /// A slot, if there is one left; a caller who gets none is counted.
    pub(crate) fn take(own: &Arc<PortCounts>, all: &Arc<PortCounts>) -> Option<Self> {
        let counts = [Arc::clone(own), Arc::clone(all)];
        let one_more = |open: u64| (open < MOST_OPEN).then_some(open + 1);
        if own.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            add(&counts, |each| &each.refused, 1);
            return None;
        }
        all.open.fetch_add(1, Ordering::Relaxed);
        add(&counts, |each| &each.connections, 1);
        Some(Self { counts })
    }

    /// Nobody was there.
    fn refuse(&self) {
        add(&self.counts, |each| &each.refused, 1);
    }

    /// Connects to a port of a sandbox; `None` when nothing listens there.
    pub(crate) async fn dial(self, sandbox: &Arc<Sandbox>, port: u16) -> Result<Option<PortStream>> {
        let used = sandbox.hold();
        let dialed = match sandbox.agent() {
            Ok(agent) => agent.dial(port).await,
            Err(error) => Err(error),
        };
        match dialed {
            Ok(Some(stream)) => Ok(Some(PortStream { stream, slot: self, _used: used })),
            other => {
                self.refuse();
                other.map(|_| None)
            }
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        for each in &self.counts {
            each.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A connection to a program in a sandbox.
#[derive(Debug)]
pub struct PortStream {
    stream: isle_egress::SandboxStream,
    slot: ConnectionSlot,
    _used: InUse,
}

impl PortStream {
    fn count(&self, counter: fn(&PortCounts) -> &AtomicU64, bytes: usize) {
        add(&self.slot.counts, counter, u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

impl AsyncRead for PortStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.count(|counts| &counts.sent, buffer.filled().len() - before);
        read
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.count(|counts| &counts.received, *count);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Nothing can listen in a sandbox that may make no sockets.
pub(super) fn has_ports(sandbox: &Sandbox) -> Result<()> {
    match sandbox.capabilities.network {
        GuestNetwork::OwnStack => Ok(()),
        GuestNetwork::ProxyOnly => Err(Error::new(
            Code::BackendUnavailable,
            format!(
                "a sandbox of tier {} has no network stack, so nothing can listen in it",
                sandbox.spec.tier.as_str()
            ),
        )
        .next("use a sandbox of tier container")),
    }
}

impl Ports {
    /// Connects to a port of a sandbox, for a caller who may.
    pub(super) async fn dial_port(
        &self,
        context: &CallContext,
        sandbox: &Arc<Sandbox>,
        port: u16,
    ) -> Result<PortStream> {
        has_ports(sandbox)?;
        let proxied = &sandbox.network.proxied;
        let slot = ConnectionSlot::take(&proxied.counts, &self.forwards.proxied).ok_or_else(|| {
            Error::new(
                Code::Busy,
                format!("{MOST_OPEN} connections to ports of {} are open already", sandbox.name),
            )
            .next("close some, or try again when some have ended")
        })?;
        let Some(stream) = slot.dial(sandbox, port).await? else {
            return Err(Error::new(
                Code::NothingListens,
                format!("nothing listens on port {port} of {}", sandbox.name),
            )
            .detail("port", port)
            .next("start the server in the sandbox, on 127.0.0.1 or 0.0.0.0")
            .next(format!(
                "GET /v1/sandboxes/{}/ports/{port}?wait=30s waits until it listens",
                sandbox.name
            )));
        };
        if proxied.is_new(&context.actor, port) {
            self.journal.audit(&Audit::files(context, "proxy", sandbox, json!({ "port": port })))?;
        }
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_capped_and_come_back() {
        let (own, all) = (Arc::new(PortCounts::default()), Arc::new(PortCounts::default()));
        let held: Vec<ConnectionSlot> =
            (0..MOST_OPEN).filter_map(|_| ConnectionSlot::take(&own, &all)).collect();
        assert_eq!(held.len() as u64, MOST_OPEN);
        assert!(ConnectionSlot::take(&own, &all).is_none());
        let other = Arc::new(PortCounts::default());
        assert!(ConnectionSlot::take(&other, &all).is_some(), "another port is none the worse");
        drop(held);
        assert!(ConnectionSlot::take(&own, &all).is_some());
        assert_eq!((own.now().open, own.now().refused, own.now().connections), (0, 1, MOST_OPEN + 1));
        assert_eq!((all.now().open, all.now().refused, all.now().connections), (0, 1, MOST_OPEN + 2));
    }

    #[test]
    fn a_caller_is_new_once_for_each_port() {
        let proxied = Proxied::default();
        let new: Vec<bool> =
            [("a", 1), ("a", 1), ("a", 2), ("b", 1)].map(|(who, port)| proxied.is_new(who, port)).into();
        assert_eq!(new, [true, false, true, true]);
    }
}
