//! Resolve once, check every address, dial what was checked. The name is not asked for again, so an
//! answer that changes in between changes nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;

use crate::address::{Class, classify};
use crate::denial::{Denial, Reason};
use crate::host::{Host, Target, unmapped};
use crate::resolve::Resolver;

/// How long one address may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why nothing was dialed, or nobody answered.
#[derive(Debug)]
pub(crate) enum Undialed {
    /// Not allowed.
    Denied(Denial),
    /// Allowed, and it did not work.
    Failed(io::Error),
}

/// Connects to a granted target. `opened` says whether an address that is not public was granted.
pub(crate) async fn dial(
    target: &Target,
    resolver: &Resolver,
    opened: impl Fn(IpAddr) -> bool,
) -> Result<TcpStream, Undialed> {
    let addresses = match &target.host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => resolver.resolve(name).await.map_err(|error| {
            Undialed::Denied(Denial::of(target, Reason::Unresolvable).detail(error.to_string()))
        })?,
    };
    let allowed = check(target, &addresses, opened).map_err(Undialed::Denied)?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in allowed {
        match tokio::time::timeout(PATIENCE, TcpStream::connect(SocketAddr::new(address, target.port))).await
        {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).ok();
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(Undialed::Failed(last))
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
        if class != Class::Public && !opened(address) {
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
