//! `create_token`, `list_tokens`, `revoke_token`: who may come in over the network, and as which tenant.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use isle_api::ops::tokens::{
    CreateInput, CreateToken, Created, ListInput, ListTokens, RevokeInput, RevokeToken, Revoked, TokenShape,
    Tokens,
};
use isle_api::times::timestamp;
use isle_core::Result;

impl Handler for CreateToken {
    async fn call(engine: Engine, context: CallContext, input: CreateInput) -> Result<Created> {
        context.operator_only("making tokens")?;
        let (id, token) = engine.inner.tenants.create_token(&context, &input.namespace)?;
        Ok(Created { id, namespace: input.namespace, token })
    }
}

impl Handler for ListTokens {
    async fn call(engine: Engine, context: CallContext, input: ListInput) -> Result<Tokens> {
        context.operator_only("listing tokens")?;
        if let Some(namespace) = &input.namespace {
            engine.check_namespace(namespace)?;
        }
        let tenants = &engine.inner.tenants;
        let tokens = tenants
            .tokens()
            .into_iter()
            .filter(|token| input.namespace.as_ref().is_none_or(|wanted| token.namespace == *wanted))
            .map(|token| TokenShape {
                id: token.id,
                namespace: token.namespace,
                created_at: timestamp(token.created_at_ms),
                last_used_at: token.last_used_ms.map(timestamp),
            })
            .collect();
        Ok(Tokens { tokens, namespaces: tenants.namespaces() })
    }
}

impl Handler for RevokeToken {
    async fn call(engine: Engine, context: CallContext, input: RevokeInput) -> Result<Revoked> {
        context.operator_only("revoking tokens")?;
        let namespace = engine.inner.tenants.revoke_token(&context, &input.token)?;
        // What was minted with it is worth as little.
        engine.inner.ports.end_of_token(input.token.as_str());
        Ok(Revoked { token: input.token, namespace })
    }
}
