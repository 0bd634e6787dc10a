//! Resolve once, check every address, dial what was checked. The name is not asked for again, so an
//! answer that changes in between changes nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::address::{Class, classify};
use crate::denial::{Denial, Reason};
use crate::gate::{State, locked};
use crate::grant::GrantId;
use crate::host::{Host, Target, unmapped};
use crate::resolve::{Resolver, Turns};

/// How long one address may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long all of them may take.
const ALTOGETHER: Duration = Duration::from_secs(30);

/// Why nothing was dialed, or nobody answered.
#[derive(Debug)]
pub(crate) enum Undialed {
    /// Not allowed.
    Denied(Denial),
    /// Allowed, and it did not work.
    Failed(io::Error),
}

/// The addresses that were dialed for a connection and had to be granted, with the grants that opened
/// them: more than one where it is dialed again. Such a grant counts the connection, too.
#[derive(Debug, Clone)]
pub(crate) struct Dialed(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    state: Arc<Mutex<State>>,
    port: u16,
    addresses: Mutex<Vec<(IpAddr, GrantId)>>,
}

impl Dialed {
    pub(crate) fn new(state: &Arc<Mutex<State>>, port: u16) -> Self {
        Self(Arc::new(Opened { state: Arc::clone(state), port, addresses: Mutex::default() }))
    }

    /// Whether an address that is not public was granted.
    fn may(&self, address: IpAddr) -> bool {
        self.0.knows(address)
            || locked(&self.0.state).policy.opens_address(address, self.0.port, Instant::now())
    }

    /// An address was reached. Says whether it may stay so: others may have used its grant up meanwhile.
    fn note(&self, address: IpAddr) -> bool {
        if classify(address) == Class::Public || self.0.knows(address) {
            return true;
        }
        let mut state = locked(&self.0.state);
        let Some(id) = state.policy.opener(address, self.0.port, Instant::now()) else { return false };
        state.policy.connected(id);
        drop(state);
        self.0.addresses().push((address, id));
        true
    }

    /// Whether all of them are still open; for somebody who has the state.
    pub(crate) fn still(&self, state: &State, now: Instant) -> bool {
        let opened = self.0.addresses();
        opened.iter().all(|&(address, id)| state.policy.still_opens(address, self.0.port, id, now))
    }
}

impl Opened {
    fn addresses(&self) -> MutexGuard<'_, Vec<(IpAddr, GrantId)>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn knows(&self, address: IpAddr) -> bool {
        self.addresses().iter().any(|&(known, _)| known == address)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let addresses = std::mem::take(&mut *self.addresses());
        let mut state = locked(&self.state);
        for (_, id) in addresses {
            state.policy.disconnected(id);
        }
    }
}

/// Connects to a granted target; `dialed` knows whether an address that is not public was granted.
pub(crate) async fn dial(
    target: &Target,
    resolver: &Resolver,
    turns: &Turns,
    dialed: &Dialed,
) -> Result<TcpStream, Undialed> {
    let (addresses, by_name) = match &target.host {
        // Granted as what it is, and counted so.
        Host::Address(address) => (vec![*address], false),
        Host::Name(name) => {
            let found = resolver.resolve(name, turns).await.map_err(|error| {
                Undialed::Denied(Denial::of(target, Reason::Unresolvable).detail(error.to_string()))
            })?;
            (found, true)
        }
    };
    let allowed =
        check(target, &addresses, |address| !by_name || dialed.may(address)).map_err(Undialed::Denied)?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let end = Instant::now() + ALTOGETHER;
    for address in allowed {
        let until = end.min(Instant::now() + PATIENCE);
        match tokio::time::timeout_at(until, TcpStream::connect(SocketAddr::new(address, target.port))).await
        {
            Ok(Ok(stream)) => {
                if by_name && !dialed.note(address) {
                    return Err(Undialed::Denied(forbidden(target, address)));
                }
                stream.set_nodelay(true).ok();
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(Undialed::Failed(last))
}

fn forbidden(target: &Target, address: IpAddr) -> Denial {
    let detail = format!("{}, {}", Host::Address(address), classify(address).as_str());
    let meant = Target { host: Host::Address(address), port: target.port };
    Denial::of(target, Reason::ForbiddenAddress).detail(detail).wanted(meant)
}

/// The addresses that may be dialed. One forbidden address forbids them all: a name that leads both
/// outside and inside is how such a gate is led astray.
pub(crate) fn check(
    target: &Target,
    addresses: &[IpAddr],
    opened: impl Fn(IpAddr) -> bool,
) -> Result<Vec<IpAddr>, Denial> {
    if addresses.is_empty() {
        return Err(Denial::of(target, Reason::Unresolvable).detail("it has no addresses"));
    }
    let mut allowed = Vec::new();
    for address in addresses.iter().copied().map(unmapped) {
        if classify(address) != Class::Public && !opened(address) {
            return Err(forbidden(target, address));
        }
        allowed.push(address);
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(addresses: &[&str], opened: &[&str]) -> Result<Vec<String>, Reason> {
        let target = Target::parse("api.example:443", None).unwrap();
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let opened: Vec<IpAddr> = opened.iter().map(|text| text.parse().unwrap()).collect();
        check(&target, &addresses, |address| opened.contains(&address))
            .map(|allowed| allowed.iter().map(ToString::to_string).collect())
            .map_err(|denial| denial.reason)
    }

    #[test]
    fn a_name_opens_public_addresses_only() {
        assert_eq!(judge(&["1.1.1.1", "2606:4700::1"], &[]).unwrap(), ["1.1.1.1", "2606:4700::1"]);
        for inside in
            ["127.0.0.1", "::1", "::ffff:10.0.0.1", "169.254.169.254", "64:ff9b::10.0.0.1", "0.0.0.0"]
        {
            assert_eq!(judge(&[inside], &[]), Err(Reason::ForbiddenAddress), "{inside}");
            assert_eq!(judge(&["1.1.1.1", inside], &[]), Err(Reason::ForbiddenAddress), "{inside}");
        }
        assert_eq!(judge(&["127.0.0.1"], &["127.0.0.1"]).unwrap(), ["127.0.0.1"]);
        assert_eq!(judge(&["::ffff:127.0.0.1"], &["127.0.0.1"]).unwrap(), ["127.0.0.1"]);
        assert_eq!(judge(&["127.0.0.2"], &["127.0.0.1"]), Err(Reason::ForbiddenAddress));
        assert_eq!(judge(&[], &[]), Err(Reason::Unresolvable));
    }
}
