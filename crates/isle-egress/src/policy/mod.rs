//! The grants of one sandbox and the decisions about connections and requests. Without grants everything is
//! denied.

pub(crate) mod address_class;
pub(crate) mod cloud_metadata;
pub(crate) mod denial;
pub(crate) mod grant;
pub(crate) mod host;
pub(crate) mod network_request;
pub(crate) mod request_rules;

use std::net::IpAddr;

use tokio::time::Instant;

use crate::policy::denial::{Denial, Reason};
use crate::policy::grant::{Grant, GrantId, Limits, Pattern, Protocol, RunKey};
use crate::policy::host::{Host, Name, Target, unmapped};
use crate::policy::request_rules::RequestMismatch;

/// A grant in force.
#[derive(Debug, Clone)]
pub(crate) struct ActiveGrant {
    pub(crate) id: GrantId,
    pub(crate) grant: Grant,
    /// The run it is limited to, if it is not for the whole sandbox.
    only: Option<RunKey>,
    /// When it expires.
    pub(crate) until: Option<Instant>,
    /// Its byte limit is used up.
    pub(crate) exhausted: bool,
    /// Connections it allowed, if those are limited.
    connected: u64,
    /// How many of those are open.
    open: u64,
    /// Requests it allowed, if those are limited.
    requested: u64,
}

impl ActiveGrant {
    /// Whether it applies to a run. An unknown run has the grants of the whole sandbox.
    fn is_for(&self, by: Option<&RunKey>) -> bool {
        self.only.as_ref().is_none_or(|only| by == Some(only))
    }

    /// Whether its connections or requests are used up. Those it allowed continue.
    fn is_spent(&self) -> bool {
        let Limits { connections, requests, .. } = self.grant.limits;
        connections.is_some_and(|most| self.connected >= most)
            || requests.is_some_and(|most| self.requested >= most)
    }
}

/// The parts of a request that grants are about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLine<'r> {
    pub(crate) target: &'r Target,
    pub(crate) protocol: Protocol,
    pub(crate) method: &'r str,
    pub(crate) path: &'r str,
    /// A header that makes some servers use another method or path.
    pub(crate) override_header: Option<&'r str>,
}

/// The grants of a sandbox.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    held: Vec<ActiveGrant>,
}

/// A target that is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) id: GrantId,
    pub(crate) protocol: Protocol,
    /// Only some requests are granted: each has to be inspected.
    pub(crate) limited: bool,
}

impl ActiveGrant {
    fn covers_address(&self, address: IpAddr, port: u16) -> bool {
        matches!(self.grant.pattern, Pattern::Addresses(_))
            && self.grant.covers(&Host::Address(unmapped(address)))
            && self.grant.ports.contains(&port)
    }
}

impl Policy {
    pub(crate) fn add(&mut self, id: GrantId, grant: Grant, only: Option<RunKey>, now: Instant) {
        let until = grant.limits.lifetime.and_then(|lifetime| now.checked_add(lifetime));
        self.held.push(ActiveGrant {
            id,
            grant,
            only,
            until,
            exhausted: false,
            connected: 0,
            open: 0,
            requested: 0,
        });
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

    /// A connection was allowed by a grant.
    pub(crate) fn connected(&mut self, id: GrantId) {
        for held in self.held.iter_mut().filter(|held| held.id == id) {
            held.connected += 1;
            held.open += 1;
            if held.is_spent() {
                // Its last connection is not cut by its expiry.
                held.until = None;
            }
        }
    }

    /// That connection has ended; a used-up grant is removed with its last one.
    pub(crate) fn disconnected(&mut self, id: GrantId) {
        for held in self.held.iter_mut().filter(|held| held.id == id) {
            held.open = held.open.saturating_sub(1);
        }
        self.held.retain(|held| held.id != id || held.open > 0 || !held.is_spent());
    }

    pub(crate) fn held(&self) -> &[ActiveGrant] {
        &self.held
    }

    /// Removes expired grants.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.held.retain(|held| held.until.is_none_or(|until| now < until));
    }

    /// When the next grant expires.
    pub(crate) fn next_expiry(&self, now: Instant) -> Option<Instant> {
        self.held.iter().filter_map(|held| held.until).filter(|&until| until > now).min()
    }

    fn in_force(&self, now: Instant) -> impl Iterator<Item = &ActiveGrant> {
        self.held.iter().filter(move |held| held.until.is_none_or(|until| now < until))
    }

    /// Whether a new connection to a target is granted, and with which protocol. A grant of all requests
    /// takes precedence over one of some.
    pub(crate) fn decide(&self, target: &Target, now: Instant) -> Result<Granted, Denial> {
        Self::judge(target, self.in_force(now).filter(|held| !held.is_spent()))
    }

    /// The same for a connection that a grant has already allowed.
    pub(crate) fn still(&self, target: &Target, by: GrantId, now: Instant) -> Result<Granted, Denial> {
        Self::judge(target, self.in_force(now).filter(|held| held.id == by || !held.is_spent()))
    }

    fn judge<'p>(target: &Target, grants: impl Iterator<Item = &'p ActiveGrant>) -> Result<Granted, Denial> {
        let mut closest: Option<&ActiveGrant> = None;
        let mut limited: Option<Granted> = None;
        let by = target.by.as_ref();
        for held in grants.filter(|held| held.is_for(by) && held.grant.covers(&target.host)) {
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

    /// The grant that allows a request, on a connection that grant `by` allowed. A grant without a limit on
    /// requests takes precedence over one with a limit.
    pub(crate) fn decide_request(
        &self,
        request: RequestLine<'_>,
        by: Option<GrantId>,
        now: Instant,
    ) -> Result<GrantId, Denial> {
        let RequestLine { target, protocol, method, path, override_header } = request;
        let (mut closest, mut counted, mut flawed) = (None, None, None);
        let own = |held: &&ActiveGrant| held.is_for(target.by.as_ref());
        for held in self.in_force(now).filter(own).filter(|held| held.grant.covers(&target.host)) {
            let fits_protocol = held.grant.ports.contains(&target.port)
                && [protocol, Protocol::Tcp].contains(&held.grant.protocol_on(target.port));
            if !fits_protocol || held.exhausted {
                continue;
            }
            // A grant of single connections applies to those only.
            let elsewhere = held.grant.limits.connections.is_some() && by != Some(held.id);
            let limit = held.grant.limits.requests;
            if !elsewhere {
                match (held.grant.requests.judge(method, path, override_header), limit) {
                    (Ok(()), None) => return Ok(held.id),
                    (Ok(()), Some(most)) if held.requested < most => {
                        counted.get_or_insert(held.id);
                    }
                    (Ok(()), Some(_)) | (Err(RequestMismatch::Other), _) => {}
                    (Err(misfit), _) => {
                        flawed.get_or_insert((held, misfit));
                    }
                }
            }
            closest.get_or_insert(held);
        }
        if let Some(id) = counted {
            return Ok(id);
        }
        if let Some((held, misfit)) = flawed {
            return Err(defect_denial(request, held, misfit));
        }
        let Some(held) = closest else { return self.decide(target, now).map(|granted| granted.id) };
        let denial = Denial::of(target, Reason::RequestNotGranted).rule(&held.grant);
        let denial = denial.detail(format!("{method} {path}"));
        let scheme = if protocol == Protocol::Http { "http" } else { "https" };
        let wanted = Grant::parse(&format!("{scheme}://{target}{path} {method}")).ok();
        // Only a grant of exactly this request is suggested: a literal `*` in the path would grant more, a
        // lower-case method less.
        let wanted = wanted.filter(|wanted| wanted.requests.single() == Some((method, path)));
        Err(match wanted {
            Some(wanted) => denial.wanted(wanted),
            None => denial,
        })
    }

    /// A request was allowed by a grant. Returns whether the grant was used up and removed.
    pub(crate) fn requested(&mut self, id: GrantId) -> bool {
        let mut spent = false;
        for held in self.held.iter_mut().filter(|held| held.id == id && held.grant.limits.requests.is_some())
        {
            held.requested += 1;
            if held.is_spent() {
                // What it allowed is not cut by its expiry.
                held.until = None;
                spent = held.open == 0;
            }
        }
        if spent {
            self.remove(id);
        }
        spent
    }

    /// Whether requests to some host have to be inspected inside TLS.
    pub(crate) fn opens_tls(&self, now: Instant) -> bool {
        self.in_force(now)
            .any(|held| held.grant.protocol == Some(Protocol::Tls) && !held.grant.requests.is_all())
    }

    /// The ports granted for a name; empty when the name is not granted.
    pub(crate) fn ports_of(&self, name: &Name, by: Option<&RunKey>, now: Instant) -> Vec<u16> {
        let host = Host::Name(name.clone());
        let mut ports: Vec<u16> = self
            .in_force(now)
            .filter(|held| held.is_for(by) && !held.is_spent() && held.grant.covers(&host))
            .flat_map(|held| held.grant.ports.iter().copied())
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Whether an address that is not public is granted on this port.
    pub(crate) fn grants_address(
        &self,
        address: IpAddr,
        port: u16,
        by: Option<&RunKey>,
        now: Instant,
    ) -> bool {
        self.address_grant(address, port, by, now).is_some()
    }

    /// The grant that covers such an address.
    pub(crate) fn address_grant(
        &self,
        address: IpAddr,
        port: u16,
        by: Option<&RunKey>,
        now: Instant,
    ) -> Option<GrantId> {
        let applies =
            |held: &&ActiveGrant| held.is_for(by) && held.covers_address(address, port) && !held.is_spent();
        self.in_force(now).find(applies).map(|held| held.id)
    }

    /// Whether such an address is still granted, for a connection that `grant` has already allowed.
    pub(crate) fn still_grants_address(
        &self,
        address: IpAddr,
        port: u16,
        grant: GrantId,
        by: Option<&RunKey>,
        now: Instant,
    ) -> bool {
        let applies = |held: &ActiveGrant| held.is_for(by) && held.covers_address(address, port);
        self.in_force(now).any(|held| applies(held) && (held.id == grant || !held.is_spent()))
    }
}

/// The denial of a request that would be granted in its plain form.
fn defect_denial(request: RequestLine<'_>, held: &ActiveGrant, misfit: RequestMismatch) -> Denial {
    let RequestLine { target, method, path, override_header, .. } = request;
    let denial = match misfit {
        RequestMismatch::AmbiguousPath(flaw) => {
            Denial::of(target, Reason::AmbiguousPath).detail(format!("{method} {path}: {flaw}"))
        }
        RequestMismatch::OverrideHeader | RequestMismatch::Other => {
            Denial::of(target, Reason::OverrideHeader).detail(override_header.unwrap_or_default())
        }
    };
    denial.rule(&held.grant)
}

#[cfg(test)]
mod tests;
