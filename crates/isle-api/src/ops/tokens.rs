//! `create_token`, `list_tokens`, `revoke_token`: who may come in over the network, and as which tenant.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{Namespace, TokenId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `create_token`.
#[derive(Debug)]
pub struct CreateToken;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateInput {
    /// Made when it is new.
    pub namespace: Namespace,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Created {
    pub id: TokenId,
    pub namespace: Namespace,
    /// Shown this once; only its hash is kept.
    pub token: String,
}

impl Operation for CreateToken {
    type Input = CreateInput;
    type Output = Created;
    const NAME: &'static str = "create_token";
    const TITLE: &'static str = "Make a token";
    const DESCRIPTION: &'static str = "Make a token for a namespace, and the namespace when it is new. Whoever has it works there and sees nothing else.";
    const ROUTE: Route = Route { method: Method::Post, path: "/tokens" };
    // The token would stay in the transcript of a model.
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Changes;
}

/// The operation `list_tokens`.
#[derive(Debug)]
pub struct ListTokens;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListInput {
    /// Left out: all.
    pub namespace: Option<Namespace>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct TokenShape {
    pub id: TokenId,
    pub namespace: Namespace,
    pub created_at: String,
    /// To the minute; left out when it was never used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Tokens {
    /// Oldest first.
    pub tokens: Vec<TokenShape>,
    /// Every namespace there is.
    pub namespaces: Vec<Namespace>,
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
}

/// The operation `revoke_token`.
#[derive(Debug)]
pub struct RevokeToken;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeInput {
    /// As list_tokens tells it.
    pub token: TokenId,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Revoked {
    pub token: TokenId,
    pub namespace: Namespace,
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
}
