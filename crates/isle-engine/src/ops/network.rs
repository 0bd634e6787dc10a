//! What a sandbox may reach and what it reached: `allow`, `revoke_grant`, `grants`, `net`.

use super::Handler;
use super::ports::{port_shape, proxied_shape};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::network::{InForce, parse_grants, peer_name};
use crate::sandbox::Sandbox;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::network::{
    Allow, AllowInput, EntryShape, GrantShape, Grants, GrantsOutput, LimitsShape, Net, NetInput, NetOutput,
    RevokeGrant, RevokeInput, SandboxInput,
};
use isle_api::times::timestamp;
use isle_core::values::{ByteSize, Span};
use isle_core::{Code, Error, Result};
use isle_egress::{ConnectionEntry, ConnectionResult, Limits};
use std::time::Duration;

/// How much is granted, as callers say it.
pub(super) fn limits(lifetime: Option<Span>, total: Option<ByteSize>, rate: Option<ByteSize>) -> Limits {
    Limits {
        lifetime: lifetime.map(|span| span.0),
        total_bytes: total.map(|size| size.0),
        bytes_per_second: rate.map(|size| size.0),
        ..Limits::default()
    }
}

pub(super) fn limits_shape(limits: &Limits, left: Option<Duration>) -> LimitsShape {
    LimitsShape {
        seconds_left: left.map(|left| left.as_secs()),
        total_bytes: limits.total_bytes,
        bytes_per_second: limits.bytes_per_second,
    }
}

/// The mean of so many times that took so long together.
fn mean_ms(together: Duration, count: u64) -> Option<f64> {
    let count = u32::try_from(count).ok().filter(|count| *count > 0)?;
    Some((together.as_secs_f64() * 1e6 / f64::from(count)).round() / 1e3)
}

fn grant_shape(one: &InForce) -> GrantShape {
    GrantShape {
        grant: one.grant.to_string(),
        source: one.source.as_str(),
        limits: limits_shape(&one.grant.limits, one.left),
        connections: one.count.connections,
        open: one.count.open,
        sent_bytes: one.count.sent,
        received_bytes: one.count.received,
        latency_ms: mean_ms(one.count.dial_time, one.count.dials),
    }
}

fn grants_output(engine: &Engine, sandbox: &Sandbox) -> GrantsOutput {
    let grants = engine.inner.network.grants(sandbox).iter().map(grant_shape).collect();
    GrantsOutput { sandbox: sandbox.name.clone(), grants }
}

fn entry_shape(entry: &ConnectionEntry) -> EntryShape {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let at = entry.at.duration_since(std::time::UNIX_EPOCH).map(millis).unwrap_or(0);
    let base = EntryShape {
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
    match &entry.result {
        ConnectionResult::Closed { sent, received } => {
            EntryShape { sent_bytes: Some(*sent), received_bytes: Some(*received), ..base }
        }
        ConnectionResult::Denied(denial) => EntryShape {
            outcome: "denied",
            reason: Some(denial.reason.as_str()),
            message: Some(denial.to_string()),
            ..base
        },
        ConnectionResult::Failed(why) => EntryShape { outcome: "failed", message: Some(why.clone()), ..base },
    }
}

impl Handler for Allow {
    async fn call(engine: Engine, context: CallContext, input: AllowInput) -> Result<GrantsOutput> {
        some(&input.hosts)?;
        let mut grants = engine.inner.grant_sets.asked(&context, &input.hosts).await?.grants;
        let limits = limits(input.lifetime, input.total, input.rate);
        grants.iter_mut().for_each(|grant| grant.limits = limits);
        let sandbox = engine.inner.sandboxes.ensure(&context, &sandbox_or_default(input.sandbox)).await?;
        engine.inner.network.allow(&context, &sandbox, &grants).await?;
        Ok(grants_output(&engine, &sandbox))
    }
}

pub(super) fn some(hosts: &[String]) -> Result<()> {
    if hosts.is_empty() {
        return Err(Error::new(Code::InvalidArgument, "no host is named")
            .next("name at least one, such as example.com:443"));
    }
    Ok(())
}

impl Handler for RevokeGrant {
    async fn call(engine: Engine, context: CallContext, input: RevokeInput) -> Result<GrantsOutput> {
        some(&input.hosts)?;
        let grants = parse_grants(&input.hosts)?;
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        engine.inner.network.revoke(&context, &sandbox, &grants)?;
        Ok(grants_output(&engine, &sandbox))
    }
}

impl Handler for Grants {
    async fn call(engine: Engine, context: CallContext, input: SandboxInput) -> Result<GrantsOutput> {
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        Ok(grants_output(&engine, &sandbox))
    }
}

impl Handler for Net {
    async fn call(engine: Engine, context: CallContext, input: NetInput) -> Result<NetOutput> {
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let in_force = engine.inner.network.grants(&sandbox);
        let dial_time = in_force.iter().map(|one| one.count.dial_time).sum();
        let dialed = in_force.iter().map(|one| one.count.dials).sum();
        let grants: Vec<GrantShape> = in_force.iter().map(grant_shape).collect();
        let net = sandbox.network.gate().map(|gate| gate.log()).unwrap_or_default();
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
            ports: engine.inner.ports.forwards_of(&sandbox).iter().map(|one| port_shape(one)).collect(),
            proxied: proxied_shape(sandbox.network.proxied.counts.now()),
            peers: engine.inner.network.peers(&sandbox).iter().map(|peer| peer_name(peer)).collect(),
            peer_ports: engine.inner.network.peer_ports(&sandbox),
            log: net.entries.iter().skip(skipped).map(entry_shape).collect(),
            grants,
        })
    }
}
