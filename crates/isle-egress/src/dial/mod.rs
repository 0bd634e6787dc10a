//! Dialing: resolve once, check every address, connect to a checked address. The name is not resolved again,
//! so a DNS answer that changes in between (DNS rebinding) has no effect.

pub(crate) mod resolver;
pub(crate) mod webhook_post;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::dial::resolver::{LookupSlots, Resolver};
use crate::gate::{State, locked};
use crate::policy::address_class::{AddressClass, classify};
use crate::policy::cloud_metadata;
use crate::policy::denial::{Denial, Reason};
use crate::policy::grant::{GrantId, RunKey};
use crate::policy::host::{Host, Target, unmapped};

/// Timeout of one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of all addresses together.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a connection was not made.
#[derive(Debug)]
pub(crate) enum DialError {
    /// Denied.
    Denied(Denial),
    /// Granted, but connecting failed.
    Failed(io::Error),
}

/// The non-public addresses that were dialed for a connection, with the grants that cover them: more than one
/// if it is dialed again. Such a grant counts the connection, too.
#[derive(Debug, Clone)]
pub(crate) struct DialedAddresses(Arc<DialedInner>);

#[derive(Debug)]
struct DialedInner {
    state: Arc<Mutex<State>>,
    port: u16,
    by: Option<RunKey>,
    addresses: Mutex<Vec<(IpAddr, GrantId)>>,
}

impl DialedAddresses {
    pub(crate) fn new(state: &Arc<Mutex<State>>, target: &Target) -> Self {
        let (port, by) = (target.port, target.by.clone());
        Self(Arc::new(DialedInner { state: Arc::clone(state), port, by, addresses: Mutex::default() }))
    }

    /// Whether an address that is not public is granted.
    fn may(&self, address: IpAddr) -> bool {
        self.0.knows(address)
            || locked(&self.0.state).policy.grants_address(
                address,
                self.0.port,
                self.0.by.as_ref(),
                Instant::now(),
            )
    }

    /// An address was connected. Returns whether it is still granted: the grant may have been used up
    /// meanwhile.
    fn note(&self, address: IpAddr) -> bool {
        if classify(address) == AddressClass::Public || self.0.knows(address) {
            return true;
        }
        let mut state = locked(&self.0.state);
        let Some(id) = state.policy.address_grant(address, self.0.port, self.0.by.as_ref(), Instant::now())
        else {
            return false;
        };
        state.policy.connected(id);
        drop(state);
        self.0.addresses().push((address, id));
        true
    }

    /// Whether all of them are still granted, for a caller that holds the state.
    pub(crate) fn still(&self, state: &State, now: Instant) -> bool {
        let opened = self.0.addresses();
        let by = self.0.by.as_ref();
        opened
            .iter()
            .all(|&(address, id)| state.policy.still_grants_address(address, self.0.port, id, by, now))
    }
}

impl DialedInner {
    fn addresses(&self) -> MutexGuard<'_, Vec<(IpAddr, GrantId)>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn knows(&self, address: IpAddr) -> bool {
        self.addresses().iter().any(|&(known, _)| known == address)
    }
}

impl Drop for DialedInner {
    fn drop(&mut self) {
        let addresses = std::mem::take(&mut *self.addresses());
        let mut state = locked(&self.state);
        for (_, id) in addresses {
            state.policy.disconnected(id);
        }
    }
}

/// Connects to a granted target; `dialed` says whether an address that is not public is granted.
pub(crate) async fn dial(
    target: &Target,
    resolver: &Resolver,
    lookup_slots: &LookupSlots,
    dialed: &DialedAddresses,
) -> Result<TcpStream, DialError> {
    let (addresses, by_name) = match &target.host {
        // Granted and counted as an address.
        Host::Address(address) => (vec![*address], false),
        Host::Name(name) => {
            let found = resolver.resolve(name, lookup_slots).await.map_err(|error| {
                DialError::Denied(Denial::of(target, Reason::Unresolvable).detail(error.to_string()))
            })?;
            (found, true)
        }
    };
    let allowed =
        check(target, &addresses, |address| !by_name || dialed.may(address)).map_err(DialError::Denied)?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let end = Instant::now() + TOTAL_TIMEOUT;
    for address in allowed {
        let until = end.min(Instant::now() + CONNECT_TIMEOUT);
        match tokio::time::timeout_at(until, TcpStream::connect(SocketAddr::new(address, target.port))).await
        {
            Ok(Ok(stream)) => {
                if by_name && !dialed.note(address) {
                    return Err(DialError::Denied(forbidden(target, address)));
                }
                stream.set_nodelay(true).ok();
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(DialError::Failed(last))
}

fn forbidden(target: &Target, address: IpAddr) -> Denial {
    let detail = format!("{}, {}", Host::Address(address), classify(address).as_str());
    let meant = Target { host: Host::Address(address), port: target.port, by: target.by.clone() };
    if cloud_metadata::is_metadata(address) {
        let meant = format!("{meant}/{}", cloud_metadata::WORD);
        return Denial::of(target, Reason::MetadataAddress).detail(detail).wanted(meant);
    }
    Denial::of(target, Reason::ForbiddenAddress).detail(detail).wanted(meant)
}

/// The addresses that may be dialed. One forbidden address forbids them all: a name that resolves to both
/// public and private addresses is a known way to bypass such a check.
pub(crate) fn check(
    target: &Target,
    addresses: &[IpAddr],
    opened: impl Fn(IpAddr) -> bool,
) -> Result<Vec<IpAddr>, Denial> {
    if addresses.is_empty() {
        return Err(Denial::of(target, Reason::Unresolvable).detail("no addresses"));
    }
    let mut allowed = Vec::new();
    for address in addresses.iter().copied().map(unmapped) {
        if classify(address) != AddressClass::Public && !opened(address) {
            return Err(forbidden(target, address));
        }
        allowed.push(address);
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests;
