//! Ports of a sandbox on this host: `expose`, `unexpose`, `wait_for_port`.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `expose`.
#[derive(Debug)]
pub struct Expose;

/// The operation `unexpose`.
#[derive(Debug)]
pub struct Unexpose;

/// The operation `wait_for_port`.
#[derive(Debug)]
pub struct WaitForPort;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExposeInput {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// Port inside the sandbox.
    pub port: u16,
    /// Port of this host's loopback; 0 is any that is free, default the same.
    pub host_port: Option<u16>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnexposeInput {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// Port inside the sandbox.
    pub port: u16,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitInput {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// Port inside the sandbox.
    pub port: u16,
    /// At most this long, default 45s.
    pub wait: Option<Span>,
}

/// A port of a sandbox on this host.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct PortShape {
    /// Inside the sandbox.
    pub port: u16,
    /// On 127.0.0.1 of this host.
    pub host_port: u16,
    /// Connections so far.
    pub connections: u64,
    /// Of those, open now.
    pub open: u64,
    /// Connections that found nobody, or one too many.
    pub refused: u64,
    /// Bytes from the sandbox.
    pub sent_bytes: u64,
    /// Bytes to the sandbox.
    pub received_bytes: u64,
}

/// What went to ports of a sandbox through the HTTP door.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ProxiedShape {
    /// Connections so far.
    pub connections: u64,
    /// Of those, open now.
    pub open: u64,
    /// Connections that found nobody, or one too many.
    pub refused: u64,
    /// Bytes from the sandbox.
    pub sent_bytes: u64,
    /// Bytes to the sandbox.
    pub received_bytes: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ExposeOutput {
    pub sandbox: SandboxName,
    /// Inside the sandbox.
    pub port: u16,
    /// On this host.
    pub host_port: u16,
    /// Where to connect, such as 127.0.0.1:8080.
    pub address: String,
    /// Whether something listens on it now.
    pub listening: bool,
    /// What should be known about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// All ports of the sandbox on this host.
    pub ports: Vec<PortShape>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct UnexposeOutput {
    pub sandbox: SandboxName,
    /// Ports of this host that are free again.
    pub host_ports: Vec<u16>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct WaitOutput {
    pub sandbox: SandboxName,
    pub port: u16,
    /// Whether something listens on it.
    pub listening: bool,
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
}
