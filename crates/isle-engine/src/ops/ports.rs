//! Ports of a sandbox on this host: `expose`, `unexpose`, `wait_for_port`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::sandbox_or_default;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::network::{Forward, PortCount};
use crate::values::{SandboxName, Span};

pub(super) struct Expose;
pub(super) struct Unexpose;
pub(super) struct WaitForPort;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExposeInput {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    /// Port inside the sandbox.
    port: u16,
    /// Port of this host's loopback; 0 is any that is free, default the same.
    host_port: Option<u16>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UnexposeInput {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    /// Port inside the sandbox.
    port: u16,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitInput {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    /// Port inside the sandbox.
    port: u16,
    /// At most this long, default 45s.
    wait: Option<Span>,
}

/// A port of a sandbox on this host.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct PortShape {
    /// Inside the sandbox.
    port: u16,
    /// On 127.0.0.1 of this host.
    host_port: u16,
    /// Connections so far.
    connections: u64,
    /// Of those, open now.
    open: u64,
    /// Connections that found nobody, or one too many.
    refused: u64,
    /// Bytes from the sandbox.
    sent_bytes: u64,
    /// Bytes to the sandbox.
    received_bytes: u64,
}

impl PortShape {
    pub(super) fn of(forward: &Forward) -> Self {
        let PortCount { connections, open, refused, sent, received } = forward.count();
        Self {
            port: forward.port,
            host_port: forward.host_port,
            connections,
            open,
            refused,
            sent_bytes: sent,
            received_bytes: received,
        }
    }
}

/// What went to ports of a sandbox through the HTTP door.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct ProxiedShape {
    /// Connections so far.
    connections: u64,
    /// Of those, open now.
    open: u64,
    /// Connections that found nobody, or one too many.
    refused: u64,
    /// Bytes from the sandbox.
    sent_bytes: u64,
    /// Bytes to the sandbox.
    received_bytes: u64,
}

impl ProxiedShape {
    /// `None` when nobody came.
    pub(super) fn of(count: PortCount) -> Option<Self> {
        let PortCount { connections, open, refused, sent, received } = count;
        (count != PortCount::default()).then_some(Self {
            connections,
            open,
            refused,
            sent_bytes: sent,
            received_bytes: received,
        })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ExposeOutput {
    sandbox: SandboxName,
    /// Inside the sandbox.
    port: u16,
    /// On this host.
    host_port: u16,
    /// Where to connect, such as 127.0.0.1:8080.
    address: String,
    /// Whether something listens on it now.
    listening: bool,
    /// What should be known about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    /// All ports of the sandbox on this host.
    ports: Vec<PortShape>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct UnexposeOutput {
    sandbox: SandboxName,
    /// Ports of this host that are free again.
    host_ports: Vec<u16>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WaitOutput {
    sandbox: SandboxName,
    port: u16,
    /// Whether something listens on it.
    listening: bool,
}

fn check(port: u16) -> Result<()> {
    if port == 0 {
        return Err(Error::new(Code::InvalidArgument, "0 is no port of a sandbox")
            .next("give a port from 1 to 65535"));
    }
    Ok(())
}

impl Operation for Expose {
    type Input = ExposeInput;
    type Output = ExposeOutput;
    const NAME: &'static str = "expose";
    const TITLE: &'static str = "Show a port";
    const DESCRIPTION: &'static str = "Show a port of a sandbox on this host's 127.0.0.1, until unexpose or the end of the sandbox or daemon.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/ports" };
    const TOOLSET: Toolset = Toolset::Network;
    const EFFECT: Effect = Effect::Idempotent;

    async fn call(engine: Engine, context: CallContext, input: ExposeInput) -> Result<ExposeOutput> {
        check(input.port)?;
        context.operator_only("showing ports on this host")?;
        let inner = &engine.inner;
        let sandbox = inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let forward = inner.expose(&context, &sandbox, input.port, input.host_port).await?;
        let listening = sandbox.agent()?.dial(input.port).await?.is_some();
        let warning = (!listening).then(|| {
            format!("nothing listens on port {} in the sandbox yet; wait_for_port waits for it", input.port)
        });
        Ok(ExposeOutput {
            sandbox: sandbox.name.clone(),
            port: forward.port,
            host_port: forward.host_port,
            address: format!("127.0.0.1:{}", forward.host_port),
            listening,
            warning,
            ports: inner.forwards.of(&sandbox).iter().map(|one| PortShape::of(one)).collect(),
        })
    }
}

impl Operation for Unexpose {
    type Input = UnexposeInput;
    type Output = UnexposeOutput;
    const NAME: &'static str = "unexpose";
    const TITLE: &'static str = "Take a port back";
    const DESCRIPTION: &'static str = "Take a port of a sandbox from this host; its connections end.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/sandboxes/{sandbox}/ports/{port}" };
    const TOOLSET: Toolset = Toolset::Network;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: UnexposeInput) -> Result<UnexposeOutput> {
        check(input.port)?;
        context.operator_only("showing a port on this host")?;
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let host_ports = engine.inner.unexpose(&context, &sandbox, input.port)?;
        Ok(UnexposeOutput { sandbox: sandbox.name.clone(), host_ports })
    }
}

impl Operation for WaitForPort {
    type Input = WaitInput;
    type Output = WaitOutput;
    const NAME: &'static str = "wait_for_port";
    const TITLE: &'static str = "Wait for a port";
    const DESCRIPTION: &'static str = "Wait until something listens on a port of a sandbox; answers listening=false when it does not in time.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/ports/{port}" };
    const TOOLSET: Toolset = Toolset::Network;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: WaitInput) -> Result<WaitOutput> {
        check(input.port)?;
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let config = &engine.inner.config;
        let within = input.wait.unwrap_or(config.wait).min(config.max_timeout).0;
        let listening = engine.inner.wait_for_port(&context, &sandbox, input.port, within).await?;
        Ok(WaitOutput { sandbox: sandbox.name.clone(), port: input.port, listening })
    }
}
