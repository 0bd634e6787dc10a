//! `allow_namespace`, `revoke_namespace_grant`, `namespace_grants`: what all sandboxes of a namespace may
//! reach. The namespace is the caller's.

use super::network::LimitsShape;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{ByteSize, Namespace, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `allow_namespace`.
#[derive(Debug)]
pub struct AllowNamespace;

/// The operation `revoke_namespace_grant`.
#[derive(Debug)]
pub struct RevokeNamespaceGrant;

/// The operation `namespace_grants`.
#[derive(Debug)]
pub struct NamespaceGrants;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllowInput {
    /// Hosts, such as "example.com:443", "*.example.com" or "10.0.0.5:5432".
    pub hosts: Vec<String>,
    /// How long, e.g. "1h"; until revoked when left out.
    pub lifetime: Option<Span>,
    /// Bytes in both directions, in all, of each sandbox.
    pub total: Option<ByteSize>,
    /// Bytes per second, of each sandbox.
    pub rate: Option<ByteSize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeInput {
    /// As `namespace_grants` shows them.
    pub hosts: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListInput {}

/// A grant of a namespace.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SharedGrantShape {
    /// Hosts, ports and protocol.
    pub grant: String,
    #[serde(flatten)]
    pub limits: LimitsShape,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct NamespaceGrantsOutput {
    pub namespace: Namespace,
    /// What all its sandboxes may reach, besides what each was granted itself.
    pub grants: Vec<SharedGrantShape>,
}

impl Operation for AllowNamespace {
    type Input = AllowInput;
    type Output = NamespaceGrantsOutput;
    const NAME: &'static str = "allow_namespace";
    const TITLE: &'static str = "Grant network to a namespace";
    const DESCRIPTION: &'static str = "Let all sandboxes of the namespace reach hosts, also those that are made later. Takes effect at once.";
    const ROUTE: Route = Route { method: Method::Post, path: "/grants" };
    // No tool: whoever asks for a network does not give it.
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Idempotent;
}

impl Operation for RevokeNamespaceGrant {
    type Input = RevokeInput;
    type Output = NamespaceGrantsOutput;
    const NAME: &'static str = "revoke_namespace_grant";
    const TITLE: &'static str = "Take network back from a namespace";
    const DESCRIPTION: &'static str =
        "Take grants of the namespace back; connections they allowed are cut, in every sandbox.";
    const ROUTE: Route = Route { method: Method::Post, path: "/grants/revoke" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Changes;
}

impl Operation for NamespaceGrants {
    type Input = ListInput;
    type Output = NamespaceGrantsOutput;
    const NAME: &'static str = "namespace_grants";
    const TITLE: &'static str = "List grants of the namespace";
    const DESCRIPTION: &'static str = "What all sandboxes of the namespace may reach.";
    const ROUTE: Route = Route { method: Method::Get, path: "/grants" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Reads;
}
