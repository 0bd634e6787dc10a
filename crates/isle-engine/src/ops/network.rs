//! What a sandbox may reach and what it reached: `allow`, `revoke_grant`, `grants`, `net`.

use std::time::Duration;

use isle_egress::{Entry, Fate, Limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::sandbox_or_default;
use super::ports::{PortShape, ProxiedShape};
use super::{Effect, Method, Operation, Route, Toolset, timestamp};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::network::{InForce, parse_grants, peer_name};
use crate::sandbox::Sandbox;
use crate::values::{ByteSize, SandboxName, Span};

pub(super) struct Allow;
pub(super) struct RevokeGrant;
pub(super) struct Grants;
pub(super) struct Net;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AllowInput {
    /// Sandbox name, default "default"; made on first use.
    sandbox: Option<SandboxName>,
    /// Hosts, such as "example.com:443", "*.example.com" or "10.0.0.5:5432"; or pip, npm, apt, cargo for
    /// what these use on this host.
    hosts: Vec<String>,
    /// How long, e.g. "1h"; until revoked when left out.
    lifetime: Option<Span>,
    /// Bytes in both directions, in all.
    total: Option<ByteSize>,
    /// Bytes per second.
    rate: Option<ByteSize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeInput {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    /// As `grants` shows them.
    hosts: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxInput {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NetInput {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    /// Newest entries of the log, default 50.
    limit: Option<usize>,
}

/// How much is granted, as callers say it.
pub(super) fn limits(lifetime: Option<Span>, total: Option<ByteSize>, rate: Option<ByteSize>) -> Limits {
    Limits {
        lifetime: lifetime.map(|span| span.0),
        total_bytes: total.map(|size| size.0),
        bytes_per_second: rate.map(|size| size.0),
        ..Limits::default()
    }
}

/// How much is granted, as it is told.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LimitsShape {
    /// How long it still holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_second: Option<u64>,
}

impl LimitsShape {
    pub(super) fn of(limits: &Limits, left: Option<Duration>) -> Self {
        Self {
            seconds_left: left.map(|left| left.as_secs()),
            total_bytes: limits.total_bytes,
            bytes_per_second: limits.bytes_per_second,
        }
    }
}

/// A grant in force.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct GrantShape {
    /// Hosts, ports and protocol.
    grant: String,
    /// config, profile, namespace, sandbox, run or once.
    source: &'static str,
    #[serde(flatten)]
    limits: LimitsShape,
    /// Connections made.
    connections: u64,
    /// Of those, open now.
    open: u64,
    /// Bytes from the sandbox.
    sent_bytes: u64,
    /// Bytes to the sandbox.
    received_bytes: u64,
    /// How long resolving and connecting took on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<f64>,
}

/// The mean of so many times that took so long together.
fn mean_ms(together: Duration, count: u64) -> Option<f64> {
    let count = u32::try_from(count).ok().filter(|count| *count > 0)?;
    Some((together.as_secs_f64() * 1e6 / f64::from(count)).round() / 1e3)
}

impl GrantShape {
    fn of(one: &InForce) -> Self {
        Self {
            grant: one.grant.to_string(),
            source: one.source.as_str(),
            limits: LimitsShape::of(&one.grant.limits, one.left),
            connections: one.count.connections,
            open: one.count.open,
            sent_bytes: one.count.sent,
            received_bytes: one.count.received,
            latency_ms: mean_ms(one.count.dial_time, one.count.dials),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct GrantsOutput {
    sandbox: SandboxName,
    /// What it may reach now; everything else is denied.
    grants: Vec<GrantShape>,
}

impl GrantsOutput {
    fn of(engine: &Engine, sandbox: &Sandbox) -> Self {
        let grants = engine.inner.grants(sandbox).iter().map(GrantShape::of).collect();
        Self { sandbox: sandbox.name.clone(), grants }
    }
}

/// One connection, or a name that was looked up and denied.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct EntryShape {
    /// Counts up.
    sequence: u64,
    /// When it was over.
    time: String,
    /// Host and port.
    target: String,
    /// closed, denied or failed.
    outcome: &'static str,
    /// How long it took.
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_bytes: Option<u64>,
    /// Why, as a word for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Why, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl EntryShape {
    fn of(entry: &Entry) -> Self {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let at = entry.at.duration_since(std::time::UNIX_EPOCH).map(millis).unwrap_or(0);
        let base = Self {
            sequence: entry.sequence,
            time: timestamp(i64::try_from(at).unwrap_or(i64::MAX)),
            target: entry.target.clone(),
            outcome: "closed",
            duration_ms: millis(entry.took),
            sent_bytes: None,
            received_bytes: None,
            reason: None,
            message: None,
        };
        match &entry.fate {
            Fate::Closed { sent, received } => {
                Self { sent_bytes: Some(*sent), received_bytes: Some(*received), ..base }
            }
            Fate::Denied(denial) => Self {
                outcome: "denied",
                reason: Some(denial.reason.as_str()),
                message: Some(denial.to_string()),
                ..base
            },
            Fate::Failed(why) => Self { outcome: "failed", message: Some(why.clone()), ..base },
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NetOutput {
    sandbox: SandboxName,
    /// Connections that were made.
    connections: u64,
    /// Of those, open now.
    open: u64,
    /// Connections and names that were denied.
    denied: u64,
    /// Granted connections that failed.
    failed: u64,
    /// Bytes from the sandbox, by grants in force.
    sent_bytes: u64,
    /// Bytes to the sandbox, by grants in force.
    received_bytes: u64,
    /// How long resolving and connecting took on average, by grants in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<f64>,
    /// What it may reach now.
    grants: Vec<GrantShape>,
    /// Its ports on this host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<PortShape>,
    /// What went to its ports through the HTTP door.
    #[serde(skip_serializing_if = "Option::is_none")]
    proxied: Option<ProxiedShape>,
    /// Sandboxes of its family, by the names under which it reaches them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peers: Vec<String>,
    /// Ports on which it does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peer_ports: Vec<u16>,
    /// The newest, oldest first.
    log: Vec<EntryShape>,
}

impl Operation for Allow {
    type Input = AllowInput;
    type Output = GrantsOutput;
    const NAME: &'static str = "allow";
    const TITLE: &'static str = "Grant network";
    const DESCRIPTION: &'static str =
        "Let a sandbox reach hosts. Everything that is not granted is denied. Takes effect at once.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/grants" };
    // No tool: whoever asks for a network does not give it.
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Idempotent;

    async fn call(engine: Engine, context: CallContext, input: AllowInput) -> Result<GrantsOutput> {
        some(&input.hosts)?;
        let mut grants = engine.inner.asked(&context, &input.hosts, None).await?.grants;
        let limits = limits(input.lifetime, input.total, input.rate);
        grants.iter_mut().for_each(|grant| grant.limits = limits);
        let sandbox = engine.inner.ensure(&context, &sandbox_or_default(input.sandbox)).await?;
        engine.inner.allow(&context, &sandbox, &grants).await?;
        Ok(GrantsOutput::of(&engine, &sandbox))
    }
}

pub(super) fn some(hosts: &[String]) -> Result<()> {
    if hosts.is_empty() {
        return Err(Error::new(Code::InvalidArgument, "no host is named")
            .next("name at least one, such as example.com:443"));
    }
    Ok(())
}

impl Operation for RevokeGrant {
    type Input = RevokeInput;
    type Output = GrantsOutput;
    const NAME: &'static str = "revoke_grant";
    const TITLE: &'static str = "Take network back";
    const DESCRIPTION: &'static str = "Take grants of a sandbox back; connections they allowed are cut.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/grants/revoke" };
    const TOOLSET: Toolset = Toolset::Network;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: RevokeInput) -> Result<GrantsOutput> {
        some(&input.hosts)?;
        let grants = parse_grants(&input.hosts)?;
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        engine.inner.revoke(&context, &sandbox, &grants)?;
        Ok(GrantsOutput::of(&engine, &sandbox))
    }
}

impl Operation for Grants {
    type Input = SandboxInput;
    type Output = GrantsOutput;
    const NAME: &'static str = "grants";
    const TITLE: &'static str = "List grants";
    const DESCRIPTION: &'static str = "What a sandbox may reach, and how much of it was used.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/grants" };
    const TOOLSET: Toolset = Toolset::Network;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: SandboxInput) -> Result<GrantsOutput> {
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        Ok(GrantsOutput::of(&engine, &sandbox))
    }
}

impl Operation for Net {
    type Input = NetInput;
    type Output = NetOutput;
    const NAME: &'static str = "net";
    const TITLE: &'static str = "Network log";
    const DESCRIPTION: &'static str =
        "What a sandbox connected to, what it was denied and why, and how much went.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/net" };
    const TOOLSET: Toolset = Toolset::Network;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: NetInput) -> Result<NetOutput> {
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let in_force = engine.inner.grants(&sandbox);
        let dial_time = in_force.iter().map(|one| one.count.dial_time).sum();
        let dialed = in_force.iter().map(|one| one.count.dials).sum();
        let grants: Vec<GrantShape> = in_force.iter().map(GrantShape::of).collect();
        let net = sandbox.network.gate().map(|gate| gate.net()).unwrap_or_default();
        let skipped = net.entries.len().saturating_sub(input.limit.unwrap_or(50));
        let sum = |what: fn(&GrantShape) -> u64| grants.iter().map(what).sum();
        Ok(NetOutput {
            sandbox: sandbox.name.clone(),
            connections: net.connections,
            open: sum(|grant| grant.open),
            denied: net.denied,
            failed: net.failed,
            sent_bytes: sum(|grant| grant.sent_bytes),
            received_bytes: sum(|grant| grant.received_bytes),
            latency_ms: mean_ms(dial_time, dialed),
            ports: engine.inner.forwards.of(&sandbox).iter().map(|one| PortShape::of(one)).collect(),
            proxied: ProxiedShape::of(sandbox.network.proxied.counts.now()),
            peers: engine.inner.peers(&sandbox).iter().map(|peer| peer_name(peer)).collect(),
            peer_ports: engine.inner.peer_ports(&sandbox),
            log: net.entries.iter().skip(skipped).map(EntryShape::of).collect(),
            grants,
        })
    }
}
