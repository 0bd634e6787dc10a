//! The gate of one sandbox: its grants, its counters, and its open connections. A change of the grants
//! applies to open connections at once.

mod grants;
mod peer_connections;
pub(crate) mod protocol_check;
mod revocation;
mod serve;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::accounting::connection_log::{ConnectionLog, ConnectionResult};
use crate::accounting::grant_counters::GrantCounters;
use crate::accounting::traffic_totals::TrafficTotals;
use crate::dial::resolver::{LookupSlots, Resolver};
use crate::policy::Policy;
use crate::policy::denial::{Denial, Reason};
use crate::policy::grant::{GrantId, RunKey};
use crate::policy::host::{Host, HostError, Name, Target};
use crate::policy::network_request::ApprovalHook;
use crate::secret_substitution::{ResponseMasking, SecretSource};
use crate::tls::certificate_authority::{CertificateAuthority, CertificateAuthorityError};
use crate::tls::trusted_cas::TrustedCas;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Closed by one of the sides.
    Closed,
    /// Denied, or cut later.
    Denied(Denial),
    /// Granted, but the server could not be reached or the connection broke.
    Failed(String),
}

/// The gate of one sandbox.
#[derive(Debug)]
pub struct Gate {
    resolver: Arc<Resolver>,
    lookup_slots: LookupSlots,
    trusted_cas: Arc<TrustedCas>,
    secrets: Option<Arc<dyn SecretSource>>,
    authority: OnceLock<Arc<CertificateAuthority>>,
    totals: Arc<TrafficTotals>,
    pub(crate) state: Arc<Mutex<State>>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) policy: Policy,
    tallies: HashMap<GrantId, Arc<GrantCounters>>,
    last_id: GrantId,
    open: usize,
    net: ConnectionLog,
    /// Notified when a request was denied.
    denied: Arc<Notify>,
    /// Where denied requests are submitted for approval.
    pub(crate) approval_hook: Option<ApprovalHook>,
}

impl State {
    /// Removes the counters of a grant.
    pub(crate) fn forget(&mut self, id: GrantId) {
        self.tallies.remove(&id);
    }

    /// Logs that a request inside a connection was denied.
    pub(crate) fn note_request(&mut self, denial: &Denial, took: Duration) {
        self.net.add(denial.target.clone(), None, took, ConnectionResult::Denied(denial.clone()));
        self.denied.notify_one();
    }
}

/// Locks the state of a gate.
pub(crate) fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    /// A gate without grants: everything is denied.
    #[must_use]
    pub fn new(resolver: Arc<Resolver>) -> Self {
        Self {
            resolver,
            lookup_slots: LookupSlots::default(),
            trusted_cas: Arc::default(),
            secrets: None,
            authority: OnceLock::new(),
            totals: Arc::default(),
            state: Arc::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Trusts these CAs for intercepted TLS connections.
    #[must_use]
    pub fn with_trusted_cas(self, trusted_cas: Arc<TrustedCas>) -> Self {
        Self { trusted_cas, ..self }
    }

    /// Replaces placeholders by their secrets in requests to the hosts of the secrets.
    #[must_use]
    pub fn with_secrets(self, secrets: Arc<dyn SecretSource>) -> Self {
        Self { secrets: Some(secrets), ..self }
    }

    /// Uses a certificate authority that was created earlier.
    #[must_use]
    pub fn with_certificate_authority(self, authority: Arc<CertificateAuthority>) -> Self {
        Self { authority: OnceLock::from(authority), ..self }
    }

    /// The certificate authority for intercepted TLS connections; created when first used.
    pub fn authority(&self) -> Result<Arc<CertificateAuthority>, CertificateAuthorityError> {
        if let Some(authority) = self.authority.get() {
            return Ok(Arc::clone(authority));
        }
        let made = Arc::new(CertificateAuthority::generate()?);
        Ok(Arc::clone(self.authority.get_or_init(|| made)))
    }

    /// Whether there is a host whose TLS connections it would intercept.
    #[must_use]
    pub fn opens_tls(&self) -> bool {
        self.secrets.as_ref().is_some_and(|secrets| secrets.masks_any())
            || self.state().policy.opens_tls(Instant::now())
    }

    /// Counts in these totals.
    #[must_use]
    pub fn counted_in(self, totals: Arc<TrafficTotals>) -> Self {
        Self { totals, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// The connection log.
    #[must_use]
    pub fn log(&self) -> ConnectionLog {
        self.state().net.clone()
    }

    /// The sequence number of the newest log entry.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.state().net.sequence
    }

    /// The distinct denials after a log entry.
    #[must_use]
    pub fn denials_after(&self, sequence: u64) -> Vec<Denial> {
        self.state().net.denials_after(sequence)
    }

    /// Resolves when a request inside a connection was denied, for a single waiter. Other denials end their
    /// connection, and its outcome reports them.
    pub async fn request_denied(&self) {
        let denied = Arc::clone(&self.state().denied);
        denied.notified().await;
    }

    /// The denial of a name, if it is not granted now. The name is not looked up.
    #[must_use]
    pub fn name_denial(&self, name: &str, by: Option<&RunKey>) -> Option<Denial> {
        let name = Name::parse(name).ok()?;
        let granted = !self.state().policy.ports_of(&name, by, Instant::now()).is_empty();
        (!granted).then(|| Denial::new(&name, Reason::NotGranted).by(by.cloned()))
    }

    /// The denial of a connection, as far as that is known before it is made.
    #[must_use]
    pub fn connection_denial(&self, host: &str, port: u16, by: Option<&RunKey>) -> Option<Denial> {
        let target = target(host, port, by).ok()?;
        self.state().policy.decide(&target, Instant::now()).err()
    }

    pub(crate) fn note(
        &self,
        target: String,
        grant: Option<GrantId>,
        took: Duration,
        result: ConnectionResult,
    ) {
        self.totals.ended(&result);
        self.state().net.add(target, grant, took, result);
    }

    /// A program looks up a name: returns the ports granted for it, or a denial.
    pub fn look_up(&self, name: &str, by: Option<&RunKey>) -> Result<(Name, Vec<u16>), Denial> {
        let name = Name::parse(name).map_err(|error| self.deny_host(name.to_owned(), error, by))?;
        let ports = self.state().policy.ports_of(&name, by, Instant::now());
        if ports.is_empty() {
            return Err(self.deny(Denial::new(&name, Reason::NotGranted).by(by.cloned())));
        }
        Ok((name, ports))
    }

    /// Logs that programs sent packets without a route.
    pub fn deny_unrouted(&self) {
        self.deny(Denial::no_route());
    }

    /// A program is about to connect. Checked again when it has.
    pub fn may_connect(&self, host: &str, port: u16, by: Option<&RunKey>) -> Result<(), Denial> {
        self.connection_denial(host, port, by).map_or(Ok(()), |denial| Err(self.deny(denial)))
    }

    /// A program is about to send UDP datagrams.
    pub fn deny_datagrams(&self, host: &str, port: u16, by: Option<&RunKey>) -> Denial {
        match target(host, port, by) {
            Ok(target) => self.deny(Denial::of(&target, Reason::NotTcp)),
            Err(error) => self.deny_host(format!("{host}:{port}"), error, by),
        }
    }

    /// Denies what is not a valid host.
    pub(crate) fn deny_host(&self, text: String, error: HostError, by: Option<&RunKey>) -> Denial {
        self.deny(Denial::new(text, Reason::Malformed).detail(error.to_string()).by(by.cloned()))
    }

    /// Logs a denial without a connection.
    pub(crate) fn deny(&self, denial: Denial) -> Denial {
        self.note(denial.target.clone(), None, Duration::ZERO, ConnectionResult::Denied(denial.clone()));
        denial
    }

    /// Whether the responses of a host are masked, because a secret is or was sent there.
    fn masks_responses(&self, host: &Host) -> bool {
        self.secrets
            .as_ref()
            .is_some_and(|secrets| !matches!(secrets.masking(host), ResponseMasking::NotNeeded))
    }
}

fn target(host: &str, port: u16, by: Option<&RunKey>) -> Result<Target, HostError> {
    if port == 0 {
        return Err(HostError::Port);
    }
    Ok(Target { host: Host::parse(host)?, port, by: by.cloned() })
}

pub(crate) fn bad_gateway(target: impl fmt::Display, error: impl fmt::Display) -> String {
    let body = format!("{target} is granted to this sandbox, but could not be reached: {error}\n");
    format!(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests;
