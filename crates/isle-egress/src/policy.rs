//! The grants of one sandbox and the question they answer. Nothing granted means nothing allowed.

use std::net::IpAddr;

use tokio::time::Instant;

use crate::denial::{Denial, Reason};
use crate::grant::{Grant, GrantId, Limits, Pattern, Protocol};
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
    /// Requests it allowed, where those are limited.
    requested: u64,
}

impl Held {
    /// Whether it has nothing left to allow. What it allowed goes on.
    fn is_spent(&self) -> bool {
        let Limits { connections, requests, .. } = self.grant.limits;
        connections.is_some_and(|most| self.connected >= most)
            || requests.is_some_and(|most| self.requested >= most)
    }
}

/// A request, as far as grants speak of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLine<'r> {
    pub(crate) target: &'r Target,
    pub(crate) protocol: Protocol,
    pub(crate) method: &'r str,
    pub(crate) path: &'r str,
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
        self.held.push(Held { id, grant, until, exhausted: false, connected: 0, open: 0, requested: 0 });
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

    /// By which grant a request may be made, on a connection that was allowed by another. One that allows
    /// any number is taken before one that does not.
    pub(crate) fn decide_request(
        &self,
        request: RequestLine<'_>,
        by: Option<GrantId>,
        now: Instant,
    ) -> Result<GrantId, Denial> {
        let RequestLine { target, protocol, method, path } = request;
        let (mut closest, mut counted) = (None, None);
        for held in self.in_force(now).filter(|held| held.grant.pattern.covers(&target.host)) {
            let spoken = held.grant.ports.contains(&target.port)
                && [protocol, Protocol::Tcp].contains(&held.grant.protocol_on(target.port));
            if !spoken || held.exhausted {
                continue;
            }
            // A grant of one connection speaks of no other.
            let elsewhere = held.grant.limits.connections.is_some() && by != Some(held.id);
            let limit = held.grant.limits.requests;
            if !elsewhere && held.grant.requests.allow(method, path) {
                match limit {
                    None => return Ok(held.id),
                    Some(most) if held.requested < most => {
                        counted.get_or_insert(held.id);
                    }
                    Some(_) => {}
                }
            }
            closest.get_or_insert(held);
        }
        if let Some(id) = counted {
            return Ok(id);
        }
        let Some(held) = closest else { return self.decide(target, now).map(|granted| granted.id) };
        let denial = Denial::of(target, Reason::RequestNotGranted).rule(&held.grant);
        let denial = denial.detail(format!("{method} {path}"));
        let scheme = if protocol == Protocol::Http { "http" } else { "https" };
        let wanted = Grant::parse(&format!("{scheme}://{target}{path} {method}")).ok();
        // Only what would grant this request and no other: a star that was asked for would be more, a
        // method in small letters less.
        let wanted = wanted.filter(|wanted| wanted.requests.single() == Some((method, path)));
        Err(match wanted {
            Some(wanted) => denial.wanted(wanted),
            None => denial,
        })
    }

    /// A request is made by a grant. Says whether the grant went with it.
    pub(crate) fn requested(&mut self, id: GrantId) -> bool {
        let mut spent = false;
        for held in self.held.iter_mut().filter(|held| held.id == id && held.grant.limits.requests.is_some())
        {
            held.requested += 1;
            if held.is_spent() {
                // What it allowed was meant whole.
                held.until = None;
                spent = held.open == 0;
            }
        }
        if spent {
            self.remove(id);
        }
        spent
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
            let line = RequestLine { target: &target, protocol, method, path };
            policy.decide_request(line, None, Instant::now())
        };
        let tls = Protocol::Tls;
        assert_eq!(ask("api.example:443", tls, "GET", "/v1/a"), Ok(0));
        assert_eq!(ask("api.example:443", tls, "POST", "/v2/a"), Ok(1));
        assert_eq!(ask("api.example:80", Protocol::Http, "PUT", "/a"), Ok(2));
        assert_eq!(ask("wide.example:443", tls, "DELETE", "/v9/a"), Ok(4));
        let denial = ask("api.example:443", tls, "POST", "/v1/a").unwrap_err();
        assert_eq!(denial.reason, Reason::RequestNotGranted);
        assert_eq!(denial.rule.as_deref(), Some("https://api.example/v1/* GET"));
        assert_eq!(denial.wanted.as_deref(), Some("https://api.example/v1/a POST"));
        for (method, path) in [("GET", "/v1/../x"), ("get", "/v1/a"), ("GET", "/v3/*"), ("A-B", "/v1/a")] {
            let denial = ask("api.example:443", tls, method, path).unwrap_err();
            assert_eq!((denial.reason, denial.wanted), (Reason::RequestNotGranted, None), "{method} {path}");
        }
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

    #[test]
    fn a_grant_of_one_request_allows_it_and_no_other() {
        let now = Instant::now();
        let target = Target::parse("api.example:443", None).unwrap();
        let line = |method, path| RequestLine { target: &target, protocol: Protocol::Tls, method, path };
        let mut policy = policy(&["https://api.example/v1/* GET"]);
        let mut once = Grant::parse("https://api.example/v1/a POST").unwrap();
        once.limits.requests = Some(1);
        once.limits.lifetime = Some(Duration::from_secs(5));
        policy.add(7, once.clone(), now);
        // What is granted anyway does not use it up.
        assert_eq!(policy.decide_request(line("GET", "/v1/a"), Some(0), now), Ok(0));
        assert!(!policy.requested(0));
        assert_eq!(policy.decide_request(line("POST", "/v1/a"), Some(0), now), Ok(7));
        assert!(policy.decide_request(line("POST", "/v1/b"), Some(0), now).is_err());
        assert!(policy.requested(7));
        let denial = policy.decide_request(line("POST", "/v1/a"), Some(0), now).unwrap_err();
        assert_eq!(denial.reason, Reason::RequestNotGranted);
        // A connection by that grant alone goes on with what was allowed.
        policy.remove(0);
        policy.add(8, once, now);
        policy.connected(8);
        assert!(!policy.requested(8));
        assert!(policy.decide_request(line("POST", "/v1/a"), Some(8), now).is_err());
        assert!(policy.still(&target, 8, now + Duration::from_secs(60)).is_ok());
        assert!(policy.decide(&target, now).is_err());
        policy.disconnected(8);
        assert!(policy.held().is_empty());
    }

    #[test]
    fn a_grant_of_one_connection_allows_no_request_on_another() {
        let mut policy = policy(&["https://api.example/v1/* GET"]);
        let mut once = Grant::parse("api.example:443/tls").unwrap();
        once.limits.connections = Some(1);
        policy.add(7, once, Instant::now());
        policy.connected(7);
        let target = Target::parse("api.example:443", None).unwrap();
        let line = RequestLine { target: &target, protocol: Protocol::Tls, method: "POST", path: "/v2/a" };
        assert_eq!(policy.decide_request(line, Some(7), Instant::now()), Ok(7));
        assert!(policy.decide_request(line, Some(0), Instant::now()).is_err());
    }
}
