//! Resolve once, check every address, dial what was checked. The name is not asked for again, so an
//! answer that changes in between changes nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::address::{Class, classify};
use crate::denial::{Denial, Reason};
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

/// The addresses that were dialed for a connection: more than one where it is dialed again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dialed(Arc<Mutex<Vec<IpAddr>>>);

impl Dialed {
    fn note(&self, address: IpAddr) {
        let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }

    /// Whether all of them may still be dialed.
    pub(crate) fn still(&self, opened: impl Fn(IpAddr) -> bool) -> bool {
        let addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.iter().all(|&address| may_dial(address, &opened))
    }
}

/// Connects to a granted target. `opened` says whether an address that is not public was granted.
pub(crate) async fn dial(
    target: &Target,
    resolver: &Resolver,
    turns: &Turns,
    opened: impl Fn(IpAddr) -> bool,
    dialed: &Dialed,
) -> Result<TcpStream, Undialed> {
    let addresses = match &target.host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => resolver.resolve(name, turns).await.map_err(|error| {
            Undialed::Denied(Denial::of(target, Reason::Unresolvable).detail(error.to_string()))
        })?,
    };
    let allowed = check(target, &addresses, opened).map_err(Undialed::Denied)?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let end = Instant::now() + ALTOGETHER;
    for address in allowed {
        let until = end.min(Instant::now() + PATIENCE);
        match tokio::time::timeout_at(until, TcpStream::connect(SocketAddr::new(address, target.port))).await
        {
            Ok(Ok(stream)) => {
                dialed.note(address);
                stream.set_nodelay(true).ok();
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(Undialed::Failed(last))
}

/// Whether an address may be dialed on the word of a name.
fn may_dial(address: IpAddr, opened: impl Fn(IpAddr) -> bool) -> bool {
    classify(address) == Class::Public || opened(address)
}

/// The addresses that may be dialed. One forbidden address forbids them all: a name that leads both
/// outside and inside is how such a gate is led astray.
fn check(
    target: &Target,
    addresses: &[IpAddr],
    opened: impl Fn(IpAddr) -> bool,
) -> Result<Vec<IpAddr>, Denial> {
    if addresses.is_empty() {
        return Err(Denial::of(target, Reason::Unresolvable).detail("it has no addresses"));
    }
    let mut allowed = Vec::new();
    for address in addresses.iter().copied().map(unmapped) {
        let class = classify(address);
        if !may_dial(address, &opened) {
            let detail = format!("{}, {}", Host::Address(address), class.as_str());
            let meant = Target { host: Host::Address(address), port: target.port };
            return Err(Denial::of(target, Reason::ForbiddenAddress).detail(detail).wanted(meant));
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
