//! The grants of one sandbox and the question they answer. Nothing granted means nothing allowed.

use std::net::IpAddr;

use tokio::time::Instant;

use crate::denial::{Denial, Reason};
use crate::grant::{Grant, GrantId, Pattern, Protocol};
use crate::host::{Host, Name, Target};

/// A grant in force.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) id: GrantId,
    pub(crate) grant: Grant,
    /// When it stops to hold.
    pub(crate) until: Option<Instant>,
    /// Its bytes are used up.
    pub(crate) exhausted: bool,
    /// Connections it allowed, where those are limited.
    connected: u64,
    /// Of those, open now.
    open: u64,
}

impl Held {
    /// Whether it has no connection left to allow. Those that are open go on.
    fn is_spent(&self) -> bool {
        self.grant.limits.connections.is_some_and(|most| self.connected >= most)
    }
}

/// The grants of a sandbox.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    held: Vec<Held>,
}

/// A target that is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) id: GrantId,
    pub(crate) protocol: Protocol,
    /// Some requests only: each has to be looked at.
    pub(crate) limited: bool,
}

impl Held {
    fn opens(&self, address: IpAddr, port: u16) -> bool {
        matches!(&self.grant.pattern, Pattern::Addresses(range) if range.contains(address))
            && self.grant.ports.contains(&port)
    }
}

impl Policy {
    pub(crate) fn add(&mut self, id: GrantId, grant: Grant, now: Instant) {
        let until = grant.limits.lifetime.and_then(|lifetime| now.checked_add(lifetime));
        self.held.push(Held { id, grant, until, exhausted: false, connected: 0, open: 0 });
    }

    pub(crate) fn remove(&mut self, id: GrantId) -> bool {
        let before = self.held.len();
        self.held.retain(|held| held.id != id);
        self.held.len() < before
    }

    pub(crate) fn exhaust(&mut self, id: GrantId) {
        for held in self.held.iter_mut().filter(|held| held.id == id) {
            held.exhausted = true;
        }
    }

    /// A connection is made by a grant.
    pub(crate) fn connected(&mut self, id: GrantId) {
        for held in self.held.iter_mut().filter(|held| held.id == id) {
            held.connected += 1;
            held.open += 1;
            if held.is_spent() {
                // It has nothing more to give than what it gave, and that was meant whole.
                held.until = None;
            }
        }
    }

    /// That connection has ended; a grant that has none left goes with its last one.
    pub(crate) fn disconnected(&mut self, id: GrantId) {
        for held in self.held.iter_mut().filter(|held| held.id == id) {
            held.open = held.open.saturating_sub(1);
        }
        self.held.retain(|held| held.id != id || held.open > 0 || !held.is_spent());
    }

    pub(crate) fn held(&self) -> &[Held] {
        &self.held
    }

    /// Drops what has expired.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.held.retain(|held| held.until.is_none_or(|until| now < until));
    }

    /// When the next grant expires.
    pub(crate) fn next_expiry(&self, now: Instant) -> Option<Instant> {
        self.held.iter().filter_map(|held| held.until).filter(|&until| until > now).min()
    }

    fn in_force(&self, now: Instant) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |held| held.until.is_none_or(|until| now < until))
    }

    /// Whether a new connection to a target is granted, and what may be spoken there. A grant of all
    /// requests is stronger than one of some.
    pub(crate) fn decide(&self, target: &Target, now: Instant) -> Result<Granted, Denial> {
        Self::judge(target, self.in_force(now).filter(|held| !held.is_spent()))
    }

    /// The same for a connection that a grant has allowed before.
    pub(crate) fn still(&self, target: &Target, by: GrantId, now: Instant) -> Result<Granted, Denial> {
        Self::judge(target, self.in_force(now).filter(|held| held.id == by || !held.is_spent()))
    }

    fn judge<'p>(target: &Target, grants: impl Iterator<Item = &'p Held>) -> Result<Granted, Denial> {
        let mut closest: Option<&Held> = None;
        let mut limited: Option<Granted> = None;
        for held in grants.filter(|held| held.grant.pattern.covers(&target.host)) {
            let on_port = held.grant.ports.contains(&target.port);
            if on_port && !held.exhausted {
                let protocol = held.grant.protocol_on(target.port);
                let granted = Granted { id: held.id, protocol, limited: !held.grant.requests.is_all() };
                if !granted.limited {
                    return Ok(granted);
                }
                limited.get_or_insert(granted);
            }
            if on_port || closest.is_none() {
                closest = Some(held);
            }
        }
        if let Some(granted) = limited {
            return Ok(granted);
        }
        Err(match closest {
            None => Denial::of(target, Reason::NotGranted),
            Some(held) if held.exhausted && held.grant.ports.contains(&target.port) => {
                Denial::of(target, Reason::Exhausted).rule(&held.grant)
            }
            Some(held) => Denial::of(target, Reason::PortNotGranted).rule(&held.grant),
        })
    }

    /// Whether a request may be made of a target.
    pub(crate) fn decide_request(
        &self,
        target: &Target,
        protocol: Protocol,
        method: &str,
        path: &str,
        now: Instant,
    ) -> Result<(), Denial> {
        let mut closest = None;
        for held in self.in_force(now).filter(|held| held.grant.pattern.covers(&target.host)) {
            let spoken = held.grant.ports.contains(&target.port)
                && [protocol, Protocol::Tcp].contains(&held.grant.protocol_on(target.port));
            if !spoken || held.exhausted {
                continue;
            }
            if held.grant.requests.allow(method, path) {
                return Ok(());
            }
            closest.get_or_insert(held);
        }
        let Some(held) = closest else { return self.decide(target, now).map(drop) };
        let denial = Denial::of(target, Reason::RequestNotGranted).rule(&held.grant);
        let denial = denial.detail(format!("{method} {path}"));
        let scheme = if protocol == Protocol::Http { "http" } else { "https" };
        let wanted = Grant::parse(&format!("{scheme}://{target}{path} {method}"));
        // A star that was asked for would be granted as one.
        Err(match wanted {
            Ok(wanted) if !path.contains('*') => denial.wanted(wanted),
            Ok(_) | Err(_) => denial,
        })
    }

    /// Whether requests to some host have to be looked at inside TLS.
    pub(crate) fn opens_tls(&self, now: Instant) -> bool {
        self.in_force(now)
            .any(|held| held.grant.protocol == Some(Protocol::Tls) && !held.grant.requests.is_all())
    }

    /// The ports granted for a name; none when the name is not granted.
    pub(crate) fn ports_of(&self, name: &Name, now: Instant) -> Vec<u16> {
        let host = Host::Name(name.clone());
        let mut ports: Vec<u16> = self
            .in_force(now)
            .filter(|held| !held.is_spent() && held.grant.pattern.covers(&host))
            .flat_map(|held| held.grant.ports.iter().copied())
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Whether an address that is not public may be dialed on this port.
    pub(crate) fn opens_address(&self, address: IpAddr, port: u16, now: Instant) -> bool {
        self.opener(address, port, now).is_some()
    }

    /// The grant by which that is so.
    pub(crate) fn opener(&self, address: IpAddr, port: u16, now: Instant) -> Option<GrantId> {
        let opens = |held: &&Held| held.opens(address, port) && !held.is_spent();
        self.in_force(now).find(opens).map(|held| held.id)
    }

    /// The same for a connection for which a grant has opened an address before.
    pub(crate) fn still_opens(&self, address: IpAddr, port: u16, by: GrantId, now: Instant) -> bool {
        self.in_force(now).any(|held| held.opens(address, port) && (held.id == by || !held.is_spent()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn policy(grants: &[&str]) -> Policy {
        let mut policy = Policy::default();
        for (id, text) in grants.iter().enumerate() {
            policy.add(id as u64, Grant::parse(text).unwrap(), Instant::now());
        }
        policy
    }

    fn ask(policy: &Policy, target: &str) -> Result<Protocol, Reason> {
        let target = Target::parse(target, Some(443)).unwrap();
        policy.decide(&target, Instant::now()).map(|granted| granted.protocol).map_err(|denial| denial.reason)
    }

    #[test]
    fn an_empty_policy_denies_everything() {
        let policy = Policy::default();
        for target in ["example.com", "1.1.1.1", "localhost", "[::1]:80"] {
            assert_eq!(ask(&policy, target), Err(Reason::NotGranted), "{target}");
        }
    }

    #[test]
    fn a_grant_covers_its_host_and_ports_only() {
        let policy = policy(&["example.com:443", "*.wide.example:22", "10.0.0.0/8:5432"]);
        for (target, answer) in [
            ("example.com", Ok(Protocol::Tls)),
            ("EXAMPLE.com.:443", Ok(Protocol::Tls)),
            ("example.com:80", Err(Reason::PortNotGranted)),
            ("a.example.com", Err(Reason::NotGranted)),
            ("badexample.com", Err(Reason::NotGranted)),
            ("example.com.evil.example", Err(Reason::NotGranted)),
            ("a.wide.example:22", Ok(Protocol::Tcp)),
            ("b.a.wide.example:22", Ok(Protocol::Tcp)),
            ("wide.example:22", Err(Reason::NotGranted)),
            ("10.1.2.3:5432", Ok(Protocol::Tcp)),
            ("[::ffff:10.1.2.3]:5432", Ok(Protocol::Tcp)),
            ("11.1.2.3:5432", Err(Reason::NotGranted)),
        ] {
            assert_eq!(ask(&policy, target), answer, "{target}");
        }
    }

    #[test]
    fn requests_are_granted_one_by_one_and_add_up() {
        let policy = policy(&[
            "https://api.example/v1/* GET",
            "https://api.example/v2/* POST",
            "http://api.example/a",
            "https://wide.example/v1/* GET",
            "wide.example:443",
        ]);
        let ask = |target: &str, protocol, method, path| {
            let target = Target::parse(target, None).unwrap();
            policy.decide_request(&target, protocol, method, path, Instant::now())
        };
        let tls = Protocol::Tls;
        assert_eq!(ask("api.example:443", tls, "GET", "/v1/a"), Ok(()));
        assert_eq!(ask("api.example:443", tls, "POST", "/v2/a"), Ok(()));
        assert_eq!(ask("api.example:80", Protocol::Http, "PUT", "/a"), Ok(()));
        assert_eq!(ask("wide.example:443", tls, "DELETE", "/v9/a"), Ok(()));
        let denial = ask("api.example:443", tls, "POST", "/v1/a").unwrap_err();
        assert_eq!(denial.reason, Reason::RequestNotGranted);
        assert_eq!(denial.rule.as_deref(), Some("https://api.example/v1/* GET"));
        assert_eq!(denial.wanted.as_deref(), Some("https://api.example/v1/a POST"));
        assert_eq!(ask("api.example:443", tls, "GET", "/v1/../x").unwrap_err().wanted, None);
        let limited = |text: &str| {
            let target = Target::parse(text, None).unwrap();
            policy.decide(&target, Instant::now()).unwrap().limited
        };
        assert!(
            limited("api.example:443") && !limited("wide.example:443") && policy.opens_tls(Instant::now())
        );
    }

    #[test]
    fn several_grants_of_one_host_add_up() {
        let policy = policy(&["example.com:443", "example.com:8443/tls", "*.example.com:22"]);
        assert_eq!(ask(&policy, "example.com:8443"), Ok(Protocol::Tls));
        assert_eq!(policy.ports_of(&Name::parse("example.com").unwrap(), Instant::now()), [443, 8443]);
        assert_eq!(policy.ports_of(&Name::parse("a.example.com").unwrap(), Instant::now()), [22]);
        assert!(policy.ports_of(&Name::parse("other.example").unwrap(), Instant::now()).is_empty());
    }

    #[test]
    fn an_expired_grant_grants_nothing() {
        let mut policy = Policy::default();
        let now = Instant::now();
        let mut grant = Grant::parse("example.com:443").unwrap();
        grant.limits.lifetime = Some(Duration::from_secs(5));
        policy.add(1, grant, now);
        let target = Target::parse("example.com:443", None).unwrap();
        assert!(policy.decide(&target, now + Duration::from_secs(4)).is_ok());
        assert_eq!(
            policy.decide(&target, now + Duration::from_secs(5)).unwrap_err().reason,
            Reason::NotGranted
        );
        assert_eq!(policy.next_expiry(now), Some(now + Duration::from_secs(5)));
    }

    #[test]
    fn used_up_bytes_are_said_so() {
        let mut policy = policy(&["example.com:443"]);
        policy.exhaust(0);
        assert_eq!(ask(&policy, "example.com"), Err(Reason::Exhausted));
        assert_eq!(ask(&policy, "example.com:80"), Err(Reason::PortNotGranted));
    }

    #[test]
    fn a_grant_of_one_connection_allows_it_whole_and_no_other() {
        let mut policy = Policy::default();
        let now = Instant::now();
        let mut grant = Grant::parse("example.com:443").unwrap();
        grant.limits.connections = Some(1);
        grant.limits.lifetime = Some(Duration::from_secs(5));
        policy.add(1, grant, now);
        let target = Target::parse("example.com:443", None).unwrap();
        let name = Name::parse("example.com").unwrap();
        assert!(policy.decide(&target, now).is_ok());
        policy.connected(1);
        assert_eq!(policy.decide(&target, now).unwrap_err().reason, Reason::NotGranted);
        assert!(policy.ports_of(&name, now).is_empty());
        // What it allowed goes on, also when unused it would have ended.
        assert!(policy.still(&target, 1, now + Duration::from_secs(60)).is_ok());
        assert!(policy.still(&target, 2, now).is_err(), "of another grant");
        policy.disconnected(1);
        assert!(policy.held().is_empty());
    }
}
