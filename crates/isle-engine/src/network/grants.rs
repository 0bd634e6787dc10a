//! Giving, taking back and listing grants of a sandbox.

use std::sync::Arc;
use std::time::Duration;

use isle_egress::{Count, Gate, Grant, GrantId};
use isle_fail::Point;
use isle_store::wall_clock_ms;
use serde_json::json;

use super::peers::Peering;
use super::{MOST_GRANTS, Source, StoredGrant, serve};
use crate::backend::Tier;
use crate::context::CallContext;
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::events::{Event, EventKind};
use crate::journal::Audit;
use crate::sandbox::Sandbox;

/// A grant in force, as it is told.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) grant: Grant,
    pub(crate) source: Source,
    pub(crate) count: Count,
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

impl Inner {
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
        let spec = &sandbox.spec;
        self.config.network.ask.is_some() && spec.tier == Tier::Process && spec.child.is_none()
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
        let (inner, sandbox) = (Arc::clone(self), Arc::clone(sandbox));
        self.tasks.spawn(async move {
            if let Err(error) = inner.open_gate(&sandbox).await {
                tracing::debug!(sandbox = %sandbox.name, %error, "what the sandbox asks for is not recorded");
            }
        });
    }

    /// Has the agent of a sandbox serve its gate.
    pub(crate) async fn open_gate<'s>(self: &Arc<Self>, sandbox: &'s Arc<Sandbox>) -> Result<&'s Arc<Gate>> {
        let agent = sandbox.agent()?;
        if !agent.serves_gate() {
            return Err(Error::new(
                Code::VersionMismatch,
                "the sandbox was made by a version of Isle that had no network",
            )
            .next("`isle reset` makes it anew; /workspace stays"));
        }
        let gate = self.gate_of(sandbox);
        let mut attached = sandbox.network.attached.lock().await;
        if !*attached {
            let asker = self.asker(sandbox);
            gate.ask_by(asker.clone());
            let desk = serve::Desk { teller: self.teller(sandbox), asker };
            let peering = Peering::of(self, sandbox);
            serve::attach(agent, Arc::clone(gate), self.halted.clone(), desk, peering).await.map_err(
                |why| {
                    Error::new(
                        Code::SandboxFailed,
                        format!("the network of the sandbox cannot be served: {why}"),
                    )
                    .next("`isle reset` makes the sandbox anew; /workspace stays")
                },
            )?;
            *attached = true;
        }
        Ok(gate)
    }

    /// Grants something for as long as a run goes on. Who may ask for it was decided when it was read.
    pub(crate) async fn grant_for_run(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        grants: &[Grant],
    ) -> Result<Option<RunGrants>> {
        if grants.is_empty() {
            return Ok(None);
        }
        sandbox.refuse_child("network of its own")?;
        let gate = Arc::clone(self.open_gate(sandbox).await?);
        let ids: Vec<GrantId> = grants.iter().map(|grant| gate.grant(grant.clone())).collect();
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
        self.asks.settle(sandbox, gate);
        let message = format!("may reach {}", texts(grants).join(", "));
        let data = json!({ "grants": grants_detail(grants) });
        self.tell_network(EventKind::NetworkGranted, sandbox, message, data);
        Ok(())
    }

    /// Tells of what a sandbox is denied.
    fn teller(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> serve::Teller {
        let (engine, sandbox) = (Arc::downgrade(self), Arc::downgrade(sandbox));
        Box::new(move |denial| {
            let (Some(engine), Some(sandbox)) = (engine.upgrade(), sandbox.upgrade()) else { return };
            let data = json!({
                "target": denial.target,
                "reason": denial.reason.as_str(),
                "rule": denial.rule,
                "grant": denial.wanted,
            });
            engine.tell_network(EventKind::NetworkDenied, &sandbox, denial.sentence(), data);
        })
    }

    pub(super) fn tell_network(
        &self,
        kind: EventKind,
        sandbox: &Sandbox,
        message: String,
        data: serde_json::Value,
    ) {
        let mut event = Event::new(kind, &sandbox.address().namespace, message).data(data);
        event.sandbox = Some(sandbox.name.to_string());
        self.publish(event);
    }

    /// Takes grants of a sandbox back: on record first, in force at once.
    pub(crate) fn revoke(&self, context: &CallContext, sandbox: &Sandbox, grants: &[Grant]) -> Result<()> {
        // Held until all is done, so that record and gate change in the same order.
        let mut sources = crate::lock(&sandbox.network.sources);
        let whose = format!("the sandbox {}", sandbox.name);
        let stored = without_grants(sandbox.network.stored(), grants, &whose)?;
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

/// As they are written.
pub(super) fn texts(grants: &[Grant]) -> Vec<String> {
    grants.iter().map(ToString::to_string).collect()
}

/// What is stored, with more. A grant of the same hosts, ports and protocol takes the place of the one
/// before; what has expired is left out.
pub(super) fn with_grants(
    mut stored: Vec<StoredGrant>,
    grants: &[Grant],
    whose: &str,
) -> Result<Vec<StoredGrant>> {
    let (now, texts) = (wall_clock_ms(), texts(grants));
    stored.retain(|one| !texts.contains(&one.grant) && one.revived(now).is_some());
    stored.extend(grants.iter().map(|grant| StoredGrant::of(grant, now)));
    if stored.len() > MOST_GRANTS {
        return Err(Error::new(Code::LimitReached, format!("{whose} has at most {MOST_GRANTS} grants"))
            .next("take some back with `revoke_grant`, or grant a wildcard such as *.example.com"));
    }
    Ok(stored)
}

/// What is stored, with less.
pub(super) fn without_grants(
    mut stored: Vec<StoredGrant>,
    grants: &[Grant],
    whose: &str,
) -> Result<Vec<StoredGrant>> {
    for text in texts(grants) {
        let before = stored.len();
        stored.retain(|one| one.grant != text);
        if stored.len() == before {
            let known: Vec<String> = stored.iter().map(|one| one.grant.clone()).collect();
            return Err(Error::new(Code::GrantNotFound, format!("{whose} has no grant {text}"))
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
