//! One connection of a sandbox, from the decision to the last byte.

use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::accounting::connection_log::ConnectionResult;
use crate::accounting::grant_counters::GrantCounters;
use crate::accounting::metered_stream::Meter;
use crate::dial::{DialError, DialedAddresses, dial};
use crate::gate::protocol_check::{FirstBytes, PlainRequest, Rejected, check_first_bytes, sends_http};
use crate::gate::revocation::Inspection;
use crate::gate::{Gate, Outcome, bad_gateway, target};
use crate::policy::denial::{Denial, Reason};
use crate::policy::grant::{GrantId, Protocol};
use crate::policy::host::Target;
use crate::policy::network_request::permit;
use crate::policy::{Granted, RequestLine};
use crate::proxy::ProxyProtocol;
use crate::relay::sandbox_stream::SandboxStream;
use crate::relay::{BytesMoved, RelayError, relay};
use crate::secret_substitution::{placeholders_in, report_stray_placeholders};
use crate::tls_intercept;
use crate::tls_intercept::upstream::{Transport, Upstream};

/// Maximum number of open connections of one sandbox.
pub(super) const MOST_OPEN: usize = 1024;

/// How a connection ended, and the last bytes to send to the program.
pub(super) struct Ended {
    outcome: Outcome,
    reply: Option<Vec<u8>>,
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, reply: None }
    }
}

/// One of the open connections of a sandbox.
pub(super) struct ConnectionSlot<'g>(&'g Gate, GrantId);

impl Drop for ConnectionSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        state.policy.disconnected(self.1);
        if !state.policy.held().iter().any(|held| held.id == self.1) {
            state.forget(self.1);
        }
    }
}

impl Gate {
    /// A program connects: `inside` is its stream. Everything is decided here, regardless of what was decided
    /// when the name was looked up. A denial is reported in HTTP to programs that use it; for others the
    /// connection is reset when the caller drops it.
    pub async fn serve(&self, host: &str, port: u16, inside: &mut SandboxStream) -> Outcome {
        let began = Instant::now();
        let target = match target(host, port, inside.by.as_ref()) {
            Ok(target) => target,
            Err(error) => {
                let denial = self.deny_host(format!("{host}:{port}"), error, inside.by.as_ref());
                return Outcome::Denied(denial);
            }
        };
        let mut moved = BytesMoved::default();
        let mut used = None;
        let Ended { outcome, reply } = self.handle(&target, inside, &mut moved, &mut used).await;
        let result = match &outcome {
            Outcome::Closed => ConnectionResult::Closed { sent: moved.sent, received: moved.received },
            Outcome::Denied(denial) => ConnectionResult::Denied(denial.clone()),
            Outcome::Failed(error) => ConnectionResult::Failed(error.clone()),
        };
        // Logged before it is reported, so that a program that sees a denial finds it in the log.
        self.note(target.to_string(), used, began.elapsed(), result);
        match reply {
            Some(words) => inside.send_final(&words).await,
            None => inside.reply_outcome(&outcome).await,
        }
        outcome
    }

    pub(super) async fn handle(
        &self,
        target: &Target,
        inside: &mut SandboxStream,
        moved: &mut BytesMoved,
        used: &mut Option<GrantId>,
    ) -> Ended {
        let (granted, counters, _slot) = match self.admit(target) {
            Ok(admitted) => admitted,
            Err(denial) => {
                // With too many connections open nothing is read, and a proxy client waits for the gate's
                // reply first.
                let reads = denial.reason != Reason::TooMany && inside.front.is_none();
                let in_http = reads && sends_http(inside).await;
                let reply = in_http.then(|| denial.http_response().into_bytes());
                return Ended { outcome: Outcome::Denied(denial), reply };
            }
        };
        *used = Some(granted.id);
        // A request to a proxy has to be rewritten for the server.
        let protocol = match granted.protocol {
            Protocol::Tcp if inside.front == Some(ProxyProtocol::Request) => Protocol::Http,
            protocol => protocol,
        };
        // The first bytes are checked before dialing, and a proxy client sends none before it is confirmed.
        if protocol != Protocol::Tcp
            && let Err(error) = inside.confirm_connected().await
        {
            return Outcome::Failed(error.to_string()).into();
        }
        let addresses = DialedAddresses::new(&self.state, target);
        let checked = tokio::select! {
            checked = check_first_bytes(target, protocol, inside) => checked,
            () = self.grant_ended(target, granted, Inspection::Undecided, &addresses) => Err(Rejected::silent(Denial::of(target, Reason::Revoked))),
        };
        let asked = match checked {
            Ok(first) => tokio::select! {
                checked = self.check_request(target, granted.id, first) => checked,
                () = self.grant_ended(target, granted, Inspection::Undecided, &addresses) => Err(Rejected { denial: Denial::of(target, Reason::Revoked), in_http: true }),
            },
            Err(refused) => Err(refused),
        };
        let first = match asked {
            Ok(first) => first,
            Err(Rejected { denial, in_http }) => {
                let reply = in_http.then(|| denial.http_response().into_bytes());
                return Ended { outcome: Outcome::Denied(denial), reply };
            }
        };
        let transport = match protocol {
            Protocol::Tls if granted.limited || self.masks_responses(&target.host) => Some(Transport::Tls),
            Protocol::Http if self.masks_responses(&target.host) => Some(Transport::Plain),
            _ => None,
        };
        if let Some(transport) = transport {
            return self
                .intercept(target, granted, inside, first.bytes, (counters, transport), moved)
                .await
                .into();
        }
        let dialing = Instant::now();
        let dialed = tokio::select! {
            dialed = self.dial(target, &addresses) => dialed,
            () = self.grant_ended(target, granted, Inspection::NotInspected, &addresses) => Err(DialError::Denied(Denial::of(target, Reason::Revoked))),
        };
        let in_http = protocol == Protocol::Http;
        let outside = match dialed {
            Ok(outside) => outside,
            Err(DialError::Denied(denial)) => {
                let reply = in_http.then(|| denial.http_response().into_bytes());
                return Ended { outcome: Outcome::Denied(denial), reply };
            }
            Err(DialError::Failed(error)) => {
                let reply = match inside.front.take() {
                    Some(front) => Some(front.unreached(target, &error)),
                    None => in_http.then(|| bad_gateway(target, &error).into_bytes()),
                };
                return Ended { outcome: Outcome::Failed(error.to_string()), reply };
            }
        };
        if let Err(error) = inside.confirm_connected().await {
            return Outcome::Failed(error.to_string()).into();
        }
        counters.dialed(dialing.elapsed());
        let open = counters.opened();
        let ended = tokio::select! {
            ended = relay(inside, outside, &first.bytes, first.rest, &counters, moved) => Some(ended),
            () = self.grant_ended(target, granted, Inspection::NotInspected, &addresses) => None,
        };
        drop(open);
        let outcome = match ended {
            Some(Ok(())) => Outcome::Closed,
            Some(Err(RelayError::Broken(error))) => Outcome::Failed(error.to_string()),
            Some(Err(RelayError::Exhausted)) => {
                self.state().policy.exhaust(granted.id);
                self.changed.send_replace(());
                Outcome::Denied(Denial::of(target, Reason::Exhausted))
            }
            None => Outcome::Denied(Denial::of(target, Reason::Revoked)),
        };
        outcome.into()
    }

    /// Serves a connection whose requests and responses are inspected.
    pub(super) async fn intercept(
        &self,
        target: &Target,
        granted: Granted,
        inside: &mut SandboxStream,
        first: Vec<u8>,
        (counters, transport): (Arc<GrantCounters>, Transport),
        moved: &mut BytesMoved,
    ) -> Outcome {
        let authority = match self.authority() {
            Ok(authority) => authority,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        let meter = Meter::new(Arc::clone(&counters));
        let addresses = DialedAddresses::new(&self.state, target);
        let outside = Upstream {
            target: target.clone(),
            resolver: Arc::clone(&self.resolver),
            lookup_slots: self.lookup_slots.clone(),
            dialed: addresses.clone(),
            state: Arc::clone(&self.state),
            trusted_cas: Arc::clone(&self.trusted_cas),
            meter: Arc::clone(&meter),
            by: granted.id,
            transport,
        };
        let open = counters.opened();
        // Boxed: most connections are not intercepted and do not need the space.
        let secrets = self.secrets.clone();
        let serving: Pin<Box<dyn Future<Output = Outcome> + Send + '_>> = match transport {
            Transport::Tls => Box::pin(tls_intercept::serve(inside, first, &authority, outside, secrets)),
            Transport::Plain => Box::pin(tls_intercept::serve_plain(inside, first, outside, secrets)),
        };
        let outcome = tokio::select! {
            // A response may fail because the byte limit is used up: that is the reason to report.
            biased;
            () = meter.exhausted() => {
                self.state().policy.exhaust(granted.id);
                self.changed.send_replace(());
                Outcome::Denied(Denial::of(target, Reason::Exhausted))
            }
            outcome = serving => outcome,
            () = self.grant_ended(target, granted, Inspection::Inspected, &addresses) => {
                Outcome::Denied(Denial::of(target, Reason::Revoked))
            }
        };
        drop(open);
        *moved = meter.moved();
        outcome
    }

    /// Checks an unencrypted request against the grants of its host. Secrets are never sent unencrypted: a
    /// placeholder in it is reported and not replaced.
    pub(super) async fn check_request(
        &self,
        target: &Target,
        by: GrantId,
        first: FirstBytes,
    ) -> Result<FirstBytes, Rejected> {
        if let Some(PlainRequest { method, path, override_header, head }) = &first.request {
            let override_header = override_header.as_deref();
            let request = RequestLine { target, protocol: Protocol::Http, method, path, override_header };
            let permitted = permit(&self.state, request, by).await;
            permitted.map_err(|denial| Rejected { denial, in_http: true })?;
            if let Some(secrets) = &self.secrets {
                let current = secrets.current();
                for swap in placeholders_in(&first.bytes[..*head], &current) {
                    let own = swap.is_for(&target.host);
                    report_stray_placeholders(&**secrets, [swap.placeholder.clone()], target, own);
                }
            }
        }
        Ok(first)
    }

    /// Decides, and takes one of the sandbox's connection slots.
    pub(super) fn admit(
        &self,
        target: &Target,
    ) -> Result<(Granted, Arc<GrantCounters>, ConnectionSlot<'_>), Denial> {
        let mut state = self.state();
        let granted = state.policy.decide(target, Instant::now())?;
        if state.open >= MOST_OPEN {
            return Err(Denial::of(target, Reason::TooMany));
        }
        let counters = state.tallies.get(&granted.id).map(Arc::clone);
        let counters = counters.ok_or_else(|| Denial::of(target, Reason::NotGranted))?;
        state.open += 1;
        state.policy.connected(granted.id);
        Ok((granted, counters, ConnectionSlot(self, granted.id)))
    }

    pub(super) async fn dial(
        &self,
        target: &Target,
        dialed: &DialedAddresses,
    ) -> Result<TcpStream, DialError> {
        dial(target, &self.resolver, &self.lookup_slots, dialed).await
    }
}
