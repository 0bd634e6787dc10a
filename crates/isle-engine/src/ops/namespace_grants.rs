//! `allow_namespace`, `revoke_namespace_grant`, `namespace_grants`: what all sandboxes of a namespace may
//! reach. The namespace is the caller's.

use super::Handler;
use super::network::limits_shape;
use super::network::{limits, some};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::network::parse_grants;
use isle_api::ops::namespace_grants::{
    AllowInput, AllowNamespace, ListInput, NamespaceGrants, NamespaceGrantsOutput, RevokeInput,
    RevokeNamespaceGrant, SharedGrantShape,
};
use isle_core::Result;
use isle_egress::Grant;

fn shared_grant_shape(grant: &Grant) -> SharedGrantShape {
    let limits = limits_shape(&grant.limits, grant.limits.lifetime);
    SharedGrantShape { grant: grant.to_string(), limits }
}

fn namespace_grants_output(engine: &Engine, context: &CallContext) -> NamespaceGrantsOutput {
    let grants = engine.inner.network.grants_of_namespace(&context.namespace);
    NamespaceGrantsOutput {
        namespace: context.namespace.clone(),
        grants: grants.iter().map(shared_grant_shape).collect(),
    }
}

impl Handler for AllowNamespace {
    async fn call(engine: Engine, context: CallContext, input: AllowInput) -> Result<NamespaceGrantsOutput> {
        some(&input.hosts)?;
        let mut grants = engine.inner.grant_sets.asked(&context, &input.hosts).await?.grants;
        let limits = limits(input.lifetime, input.total, input.rate);
        grants.iter_mut().for_each(|grant| grant.limits = limits);
        engine.inner.network.allow_namespace(&context, &grants)?;
        Ok(namespace_grants_output(&engine, &context))
    }
}

impl Handler for RevokeNamespaceGrant {
    async fn call(engine: Engine, context: CallContext, input: RevokeInput) -> Result<NamespaceGrantsOutput> {
        some(&input.hosts)?;
        let grants = parse_grants(&input.hosts)?;
        engine.inner.network.revoke_namespace(&context, &grants)?;
        Ok(namespace_grants_output(&engine, &context))
    }
}

impl Handler for NamespaceGrants {
    async fn call(engine: Engine, context: CallContext, _: ListInput) -> Result<NamespaceGrantsOutput> {
        Ok(namespace_grants_output(&engine, &context))
    }
}
