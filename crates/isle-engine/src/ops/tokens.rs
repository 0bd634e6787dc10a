//! `create_token`, `list_tokens`, `revoke_token`: who may come in over the network, and as which tenant.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::times::timestamp;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::values::{Namespace, TokenId};

pub(super) struct CreateToken;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateInput {
    /// Made when it is new.
    namespace: Namespace,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Created {
    id: TokenId,
    namespace: Namespace,
    /// Shown this once; only its hash is kept.
    token: String,
}

impl Operation for CreateToken {
    type Input = CreateInput;
    type Output = Created;
    const NAME: &'static str = "create_token";
    const TITLE: &'static str = "Make a token";
    const DESCRIPTION: &'static str = "Make a token for a namespace, and the namespace when it is new. Whoever has it works there and sees nothing else.";
    const ROUTE: Route = Route { method: Method::Post, path: "/tokens" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: CreateInput) -> Result<Created> {
        context.operator_only("making tokens")?;
        let (id, token) = engine.inner.create_token(&context, &input.namespace)?;
        Ok(Created { id, namespace: input.namespace, token })
    }
}

pub(super) struct ListTokens;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListInput {
    /// Left out: all.
    namespace: Option<Namespace>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct TokenShape {
    id: TokenId,
    namespace: Namespace,
    created_at: String,
    /// To the minute; left out when it was never used.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_at: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Tokens {
    /// Oldest first.
    tokens: Vec<TokenShape>,
    /// Every namespace there is.
    namespaces: Vec<Namespace>,
}

impl Operation for ListTokens {
    type Input = ListInput;
    type Output = Tokens;
    const NAME: &'static str = "list_tokens";
    const TITLE: &'static str = "List tokens";
    const DESCRIPTION: &'static str =
        "Tokens of namespaces: whose, since when, when last used. The tokens themselves are not kept.";
    const ROUTE: Route = Route { method: Method::Get, path: "/tokens" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Reads;

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

pub(super) struct RevokeToken;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeInput {
    /// As list_tokens tells it.
    token: TokenId,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Revoked {
    token: TokenId,
    namespace: Namespace,
}

impl Operation for RevokeToken {
    type Input = RevokeInput;
    type Output = Revoked;
    const NAME: &'static str = "revoke_token";
    const TITLE: &'static str = "Revoke a token";
    const DESCRIPTION: &'static str =
        "Make a token worthless from the next request on. Its namespace and what is in it stay.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/tokens/{token}" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Destroys;

    async fn call(engine: Engine, context: CallContext, input: RevokeInput) -> Result<Revoked> {
        context.operator_only("revoking tokens")?;
        let namespace = engine.inner.revoke_token(&context, &input.token)?;
        Ok(Revoked { token: input.token, namespace })
    }
}
