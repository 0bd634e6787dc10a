//! What a sandbox may reach and what it reached: `allow`, `revoke_grant`, `grants`, `net`.

use super::ports::{PortShape, ProxiedShape};
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{ByteSize, SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `allow`.
#[derive(Debug)]
pub struct Allow;

/// The operation `revoke_grant`.
#[derive(Debug)]
pub struct RevokeGrant;

/// The operation `grants`.
#[derive(Debug)]
pub struct Grants;

/// The operation `net`.
#[derive(Debug)]
pub struct Net;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllowInput {
    /// Sandbox name, default "default"; made on first use.
    pub sandbox: Option<SandboxName>,
    /// Hosts, such as "example.com:443", "*.example.com" or "10.0.0.5:5432"; or pip, npm, apt, cargo for
    /// what these use on this host.
    pub hosts: Vec<String>,
    /// How long, e.g. "1h"; until revoked when left out.
    pub lifetime: Option<Span>,
    /// Bytes in both directions, in all.
    pub total: Option<ByteSize>,
    /// Bytes per second.
    pub rate: Option<ByteSize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeInput {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// As `grants` shows them.
    pub hosts: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxInput {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetInput {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// Newest entries of the log, default 50.
    pub limit: Option<usize>,
}

/// How much is granted, as it is told.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LimitsShape {
    /// How long it still holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// A grant in force.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct GrantShape {
    /// Hosts, ports and protocol.
    pub grant: String,
    /// config, profile, namespace, sandbox, run or once.
    pub source: &'static str,
    #[serde(flatten)]
    pub limits: LimitsShape,
    /// Connections made.
    pub connections: u64,
    /// Of those, open now.
    pub open: u64,
    /// Bytes from the sandbox.
    pub sent_bytes: u64,
    /// Bytes to the sandbox.
    pub received_bytes: u64,
    /// How long resolving and connecting took on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct GrantsOutput {
    pub sandbox: SandboxName,
    /// What it may reach now; everything else is denied.
    pub grants: Vec<GrantShape>,
}

/// One connection, or a name that was looked up and denied.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct EntryShape {
    /// Counts up.
    pub sequence: u64,
    /// When it was over.
    pub time: String,
    /// Host and port.
    pub target: String,
    /// closed, denied or failed.
    pub outcome: &'static str,
    /// How long it took.
    pub duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Why, as a word for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Why, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct NetOutput {
    pub sandbox: SandboxName,
    /// Connections that were made.
    pub connections: u64,
    /// Of those, open now.
    pub open: u64,
    /// Connections and names that were denied.
    pub denied: u64,
    /// Granted connections that failed.
    pub failed: u64,
    /// Bytes from the sandbox, by grants in force.
    pub sent_bytes: u64,
    /// Bytes to the sandbox, by grants in force.
    pub received_bytes: u64,
    /// How long resolving and connecting took on average, by grants in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// What it may reach now.
    pub grants: Vec<GrantShape>,
    /// Its ports on this host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortShape>,
    /// What went to its ports through the HTTP door.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxied: Option<ProxiedShape>,
    /// Sandboxes of its family, by the names under which it reaches them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// Ports on which it does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peer_ports: Vec<u16>,
    /// The newest, oldest first.
    pub log: Vec<EntryShape>,
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
}
