//! Giving, taking back and listing grants of a sandbox.

use std::sync::Arc;
use std::time::Duration;

use isle_core::clock::wall_clock_ms;
use isle_egress::{Gate, Grant, GrantId, RunKey, TrafficCount};
use isle_fail::Point;
use serde_json::json;

use super::peers::Peering;
use super::{MOST_GRANTS, Network, Source, StoredGrant, serve};
use crate::agent::unresponsive;
use crate::context::CallContext;
use crate::events::{Event, EventKind};
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use isle_core::backend::GuestNetwork;
use isle_core::values::RunId;
use isle_core::{Code, Error, Result};

/// A grant in force, as it is told.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) grant: Grant,
    pub(crate) source: Source,
    pub(crate) count: TrafficCount,
    pub(crate) left: Option<Duration>,
}

/// Grants of one run; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct RunGrants {
    pub(super) gate: Arc<Gate>,
    pub(super) ids: Vec<GrantId>,
}

impl Drop for RunGrants {
    fn drop(&mut self) {
        for &id in &self.ids {
            self.gate.revoke(id);
        }
    }
}

impl Network {
    /// The gate of a sandbox, with what the configuration, its profile, its namespace and earlier calls
    /// granted it.
    fn gate_of<'s>(&self, sandbox: &'s Sandbox) -> &'s Arc<Gate> {
        if let Some(gate) = sandbox.network.gate.get() {
            return gate;
        }
        // Held until the gate is known: who changes what a namespace may reach finds it, or comes first.
        let shared = self.namespace_grants.hold();
        sandbox.network.gate.get_or_init(|| {
            let gate = self.new_gate(sandbox);
            let mut sources = crate::lock(&sandbox.network.sources);
            let mut give = |grant: Grant, source| sources.push((gate.grant(grant), source));
            for grant in &self.config.network.allow {
                give(grant.clone(), Source::Config);
            }
            for grant in sandbox.profile_grants() {
                give(grant, Source::Profile);
            }
            let now = wall_clock_ms();
            for grant in shared.of(&sandbox.namespace).iter().filter_map(|stored| stored.revived(now)) {
                give(grant, Source::Namespace);
            }
            for grant in sandbox.network.stored().iter().filter_map(|stored| stored.revived(now)) {
                give(grant, Source::Sandbox);
            }
            Arc::new(gate)
        })
    }

    /// Whether questions of a sandbox are put to somebody and nothing but its proxy hears them: then it is
    /// there before anything is granted. Programs elsewhere ask by looking names up, children not at all.
    pub(super) fn asks_by_proxy(&self, sandbox: &Sandbox) -> bool {
        self.config.network.ask.is_some()
            && sandbox.capabilities.network == GuestNetwork::ProxyOnly
            && sandbox.spec.child.is_none()
    }

    /// Opens the gate of a sandbox that was granted something before anybody used it.
    pub(crate) async fn open_granted_gate(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        let granted = !self.config.network.allow.is_empty()
            || !sandbox.network.stored().is_empty()
            || !self.peer_ports(sandbox).is_empty()
            || self.asks_by_proxy(sandbox)
            || sandbox.profile.as_ref().is_some_and(|profile| !profile.allow.is_empty())
            || self.namespace_grants.has(&sandbox.namespace);
        if !granted {
            return;
        }
        if let Err(error) = self.open_gate(sandbox).await {
            tracing::warn!(sandbox = %sandbox.name, %error, "the sandbox has no network");
        }
    }

    /// Opens the gate of a sandbox in which somebody asks for a name: what is denied is recorded, too.
    pub(crate) fn open_gate_later(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        let (network, sandbox) = (Arc::clone(self), Arc::clone(sandbox));
        self.tasks.spawn(async move {
            if let Err(error) = network.open_gate(&sandbox).await {
                tracing::debug!(sandbox = %sandbox.name, %error, "what the sandbox asks for is not recorded");
            }
        });
    }

    /// Has the agent of a sandbox serve its gate.
    pub(crate) async fn open_gate<'s>(self: &Arc<Self>, sandbox: &'s Arc<Sandbox>) -> Result<&'s Arc<Gate>> {
        let agent = sandbox.agent()?;
        let gate = self.gate_of(sandbox);
        let mut served = sandbox.network.served.lock().await;
        if !*served {
            let asker = self.asker(sandbox);
            gate.set_approval_hook(asker.clone());
            let handlers = serve::DenialHandlers {
                report: self.denial_reporter(sandbox),
                asker,
                run_of: self.run_lookup(sandbox),
            };
            let peering = Peering::of(self, sandbox);
            serve::serve_gate(agent, Arc::clone(gate), self.tasks.halted().clone(), handlers, peering)
                .await
                .map_err(|why| {
                    if sandbox.is_unresponsive() {
                        return unresponsive();
                    }
                    Error::new(
                        Code::SandboxFailed,
                        format!("the network of the sandbox cannot be served: {why}"),
                    )
                    .next("`isle reset` makes the sandbox anew; /workspace stays")
                })?;
            *served = true;
        }
        Ok(gate)
    }

    /// Which run of a sandbox its agent means. What the agent says is the guest's word: no run of another
    /// sandbox, and none that has ended, is ever meant.
    fn run_lookup(&self, sandbox: &Arc<Sandbox>) -> serve::RunLookup {
        let (runs, sandbox) = (Arc::downgrade(&self.runs), sandbox.id.clone());
        Box::new(move |run| {
            let run = runs.upgrade()?.get(&run.parse().ok()?)?;
            let goes_on = run.sandbox.id == sandbox && !run.state().is_final();
            goes_on.then(|| RunKey::new(run.id.as_str()))
        })
    }

    /// Grants something to the programs of a run, for as long as it goes on. Who may ask for it was decided
    /// when it was read.
    pub(crate) async fn grant_for_run(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        run: &RunId,
        grants: &[Grant],
    ) -> Result<Option<RunGrants>> {
        if grants.is_empty() {
            return Ok(None);
        }
        sandbox.refuse_child("network of its own")?;
        let gate = Arc::clone(self.open_gate(sandbox).await?);
        let holder = RunKey::new(run.as_str());
        let ids: Vec<GrantId> =
            grants.iter().map(|grant| gate.grant_to(grant.clone(), holder.clone())).collect();
        crate::lock(&sandbox.network.sources).extend(ids.iter().map(|&id| (id, Source::Run)));
        Ok(Some(RunGrants { gate, ids }))
    }

    /// Grants something to a sandbox: on record first, in force at once. A grant of the same hosts, ports
    /// and protocol takes the place of the one before.
    pub(crate) async fn allow(
        self: &Arc<Self>,
        context: &CallContext,
        sandbox: &Arc<Sandbox>,
        grants: &[Grant],
    ) -> Result<()> {
        // A child never reaches more than its parent: it has what all sandboxes of the namespace have.
        sandbox.refuse_child("network of its own")?;
        context.operator_only("granting network")?;
        let gate = Arc::clone(self.open_gate(sandbox).await?);
        let audit = Audit::files(context, "allow", sandbox, json!({ "grants": grants_detail(grants) }));
        self.give_grants(sandbox, &gate, grants, &audit)
    }

    /// The same for whoever has the gate, and says why.
    pub(super) fn give_grants(
        &self,
        sandbox: &Sandbox,
        gate: &Gate,
        grants: &[Grant],
        audit: &Audit,
    ) -> Result<()> {
        // Held until all is done, so that record and gate change in the same order.
        let mut sources = crate::lock(&sandbox.network.sources);
        let stored = with_grants(sandbox.network.stored(), grants, "a sandbox")?;
        self.journal.sandbox_grants(sandbox, stored.clone(), audit)?;
        isle_fail::pass(Point::GrantRecorded);
        *crate::lock(&sandbox.network.stored) = stored;
        replace(gate, &mut sources, grants, Source::Sandbox);
        drop(sources);
        self.requests.settle(sandbox, gate);
        let message = format!("may reach {}", texts(grants).join(", "));
        let data = json!({ "grants": grants_detail(grants) });
        self.notify(EventKind::NetworkGranted, sandbox, message, data);
        Ok(())
    }

    /// Tells of what a sandbox is denied.
    fn denial_reporter(&self, sandbox: &Arc<Sandbox>) -> serve::DenialReporter {
        let (notifier, sandbox) = (Arc::downgrade(&self.notifier), Arc::downgrade(sandbox));
        Box::new(move |denial| {
            let (Some(notifier), Some(sandbox)) = (notifier.upgrade(), sandbox.upgrade()) else { return };
            let data = json!({
                "target": denial.target,
                "reason": denial.reason.as_str(),
                "rule": denial.rule,
                "grant": denial.wanted,
            });
            let mut event = network_event(EventKind::NetworkDenied, &sandbox, denial.sentence(), data);
            event.run = denial.by.as_ref().map(|run| run.as_str().to_owned());
            notifier.publish(event);
        })
    }

    pub(super) fn notify(
        &self,
        kind: EventKind,
        sandbox: &Sandbox,
        message: String,
        data: serde_json::Value,
    ) {
        self.notifier.publish(network_event(kind, sandbox, message, data));
    }

    /// Takes grants of a sandbox back: on record first, in force at once.
    pub(crate) fn revoke(&self, context: &CallContext, sandbox: &Sandbox, grants: &[Grant]) -> Result<()> {
        // Held until all is done, so that record and gate change in the same order.
        let mut sources = crate::lock(&sandbox.network.sources);
        let run_of = format!("the sandbox {}", sandbox.name);
        let stored = without_grants(sandbox.network.stored(), grants, &run_of)?;
        let audit = Audit::files(context, "revoke_grant", sandbox, json!({ "grants": texts(grants) }));
        self.journal.sandbox_grants(sandbox, stored.clone(), &audit)?;
        isle_fail::pass(Point::GrantRecorded);
        *crate::lock(&sandbox.network.stored) = stored;
        if let Some(gate) = sandbox.network.gate() {
            withdraw(gate, &mut sources, grants, Source::Sandbox);
        }
        Ok(())
    }

    /// What a sandbox may reach now.
    pub(crate) fn grants(&self, sandbox: &Sandbox) -> Vec<InForce> {
        let gate = self.gate_of(sandbox);
        let sources = crate::lock(&sandbox.network.sources);
        let source =
            |id| sources.iter().find(|(known, _)| *known == id).map_or(Source::Run, |(_, source)| *source);
        gate.grants()
            .into_iter()
            .map(|(id, grant, count, left)| InForce { grant, source: source(id), count, left })
            .collect()
    }
}

fn network_event(kind: EventKind, sandbox: &Sandbox, message: String, data: serde_json::Value) -> Event {
    let mut event = Event::new(kind, &sandbox.namespace, message).data(data);
    event.sandbox = Some(sandbox.name.to_string());
    event
}

/// As they are written.
pub(super) fn texts(grants: &[Grant]) -> Vec<String> {
    grants.iter().map(ToString::to_string).collect()
}

/// What is stored, with more. A grant of the same hosts, ports and protocol takes the place of the one
/// before; what has expired is left out.
pub(super) fn with_grants(
    mut stored: Vec<StoredGrant>,
    grants: &[Grant],
    run_of: &str,
) -> Result<Vec<StoredGrant>> {
    let (now, texts) = (wall_clock_ms(), texts(grants));
    stored.retain(|one| !texts.contains(&one.grant) && one.revived(now).is_some());
    stored.extend(grants.iter().map(|grant| StoredGrant::of(grant, now)));
    if stored.len() > MOST_GRANTS {
        return Err(Error::new(Code::LimitReached, format!("{run_of} has at most {MOST_GRANTS} grants"))
            .next("take some back with `revoke_grant`, or grant a wildcard such as *.example.com"));
    }
    Ok(stored)
}

/// What is stored, with less.
pub(super) fn without_grants(
    mut stored: Vec<StoredGrant>,
    grants: &[Grant],
    run_of: &str,
) -> Result<Vec<StoredGrant>> {
    for text in texts(grants) {
        let before = stored.len();
        stored.retain(|one| one.grant != text);
        if stored.len() == before {
            let known: Vec<String> = stored.iter().map(|one| one.grant.clone()).collect();
            return Err(Error::new(Code::GrantNotFound, format!("{run_of} has no grant {text}"))
                .detail("grants", known)
                .next("name one of those in `details`; grants of the configuration are changed there"));
        }
    }
    Ok(stored)
}

/// Gives grants to a gate, in the place of those that say the same and come from there.
pub(super) fn replace(gate: &Gate, sources: &mut Vec<(GrantId, Source)>, grants: &[Grant], from: Source) {
    let before = ids(gate, sources, grants, from);
    sources.extend(grants.iter().map(|grant| (gate.grant(grant.clone()), from)));
    // Afterwards: what is open by both is not cut.
    end(gate, sources, &before);
}

/// Takes grants back from a gate that come from there.
pub(super) fn withdraw(gate: &Gate, sources: &mut Vec<(GrantId, Source)>, grants: &[Grant], from: Source) {
    let found = ids(gate, sources, grants, from);
    end(gate, sources, &found);
}

fn ids(gate: &Gate, sources: &[(GrantId, Source)], grants: &[Grant], from: Source) -> Vec<GrantId> {
    let texts = texts(grants);
    let wanted =
        |id: GrantId, grant: &Grant| sources.contains(&(id, from)) && texts.contains(&grant.to_string());
    let held = gate.grants();
    held.iter().filter(|(id, grant, ..)| wanted(*id, grant)).map(|(id, ..)| *id).collect()
}

fn end(gate: &Gate, sources: &mut Vec<(GrantId, Source)>, ids: &[GrantId]) {
    for &id in ids {
        gate.revoke(id);
    }
    sources.retain(|(id, _)| !ids.contains(id));
}

pub(super) fn grants_detail(grants: &[Grant]) -> Vec<serde_json::Value> {
    grants
        .iter()
        .map(|grant| {
            json!({
                "grant": grant.to_string(),
                "total_bytes": grant.limits.total_bytes,
                "bytes_per_second": grant.limits.bytes_per_second,
                "for_seconds": grant.limits.lifetime.map(|lifetime| lifetime.as_secs()),
            })
        })
        .collect()
}

impl Sandbox {
    /// What the profile it was made by grants.
    fn profile_grants(&self) -> Vec<Grant> {
        let texts = self.profile.as_ref().map(|profile| profile.allow.as_slice()).unwrap_or_default();
        // They were read when the sandbox was made; what no longer can be read grants nothing.
        texts.iter().filter_map(|text| Grant::parse(text).ok()).collect()
    }
}

impl StoredGrant {
    fn of(grant: &Grant, now_ms: i64) -> Self {
        Self {
            grant: grant.to_string(),
            total_bytes: grant.limits.total_bytes,
            bytes_per_second: grant.limits.bytes_per_second,
            expires_at_ms: grant.limits.lifetime.map(|lifetime| {
                now_ms.saturating_add(i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX))
            }),
        }
    }

    /// As a grant again, if it still holds.
    pub(super) fn revived(&self, now_ms: i64) -> Option<Grant> {
        let mut grant = Grant::parse(&self.grant).ok()?;
        grant.limits.total_bytes = self.total_bytes;
        grant.limits.bytes_per_second = self.bytes_per_second;
        if let Some(expires) = self.expires_at_ms {
            let left = u64::try_from(expires.saturating_sub(now_ms)).ok().filter(|&left| left > 0)?;
            grant.limits.lifetime = Some(Duration::from_millis(left));
        }
        Some(grant)
    }
}
