//! `allow_namespace`, `revoke_namespace_grant`, `namespace_grants`: what all sandboxes of a namespace may
//! reach. The namespace is the caller's.

use isle_egress::Grant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::network::{LimitsShape, limits, some};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::network::parse_grants;
use crate::values::{ByteSize, Namespace, Span};

pub(super) struct AllowNamespace;
pub(super) struct RevokeNamespaceGrant;
pub(super) struct NamespaceGrants;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AllowInput {
    /// Hosts, such as "example.com:443", "*.example.com" or "10.0.0.5:5432".
    hosts: Vec<String>,
    /// How long, e.g. "1h"; until revoked when left out.
    lifetime: Option<Span>,
    /// Bytes in both directions, in all, of each sandbox.
    total: Option<ByteSize>,
    /// Bytes per second, of each sandbox.
    rate: Option<ByteSize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeInput {
    /// As `namespace_grants` shows them.
    hosts: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListInput {}

/// A grant of a namespace.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct SharedGrantShape {
    /// Hosts, ports and protocol.
    grant: String,
    #[serde(flatten)]
    limits: LimitsShape,
}

impl SharedGrantShape {
    fn of(grant: &Grant) -> Self {
        let limits = LimitsShape::of(&grant.limits, grant.limits.lifetime);
        Self { grant: grant.to_string(), limits }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NamespaceGrantsOutput {
    namespace: Namespace,
    /// What all its sandboxes may reach, besides what each was granted itself.
    grants: Vec<SharedGrantShape>,
}

impl NamespaceGrantsOutput {
    fn of(engine: &Engine, context: &CallContext) -> Self {
        let grants = engine.inner.grants_of_namespace(&context.namespace);
        Self {
            namespace: context.namespace.clone(),
            grants: grants.iter().map(SharedGrantShape::of).collect(),
        }
    }
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

    async fn call(engine: Engine, context: CallContext, input: AllowInput) -> Result<NamespaceGrantsOutput> {
        some(&input.hosts)?;
        let mut grants = engine.inner.asked(&context, &input.hosts, None).await?.grants;
        let limits = limits(input.lifetime, input.total, input.rate);
        grants.iter_mut().for_each(|grant| grant.limits = limits);
        engine.inner.allow_namespace(&context, &grants)?;
        Ok(NamespaceGrantsOutput::of(&engine, &context))
    }
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

    async fn call(engine: Engine, context: CallContext, input: RevokeInput) -> Result<NamespaceGrantsOutput> {
        some(&input.hosts)?;
        let grants = parse_grants(&input.hosts)?;
        engine.inner.revoke_namespace(&context, &grants)?;
        Ok(NamespaceGrantsOutput::of(&engine, &context))
    }
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

    async fn call(engine: Engine, context: CallContext, _: ListInput) -> Result<NamespaceGrantsOutput> {
        Ok(NamespaceGrantsOutput::of(&engine, &context))
    }
}
