//! `network_requests`, `approve_request`, `deny_request`: what sandboxes were denied, and a person's answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, Method, Operation, Route, Toolset, timestamp};
use crate::context::{CallContext, Door};
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::network::{Ask, Facts, Scope};
use crate::values::{AskId, Namespace, RunId, SandboxName, Span};

pub(super) struct NetworkRequests;
pub(super) struct ApproveRequest;
pub(super) struct DenyRequest;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListInput {
    /// Only of this sandbox.
    sandbox: Option<SandboxName>,
    /// Those of all namespaces.
    all: Option<bool>,
}

/// What a sandbox was denied, and what would be granted.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct RequestShape {
    /// For `approve_request` and `deny_request`.
    request: AskId,
    namespace: Namespace,
    sandbox: SandboxName,
    /// The run that asked; of several that went on, the one that began last.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    /// pending, denied or approved.
    state: &'static str,
    /// What would be granted, and nothing else.
    grant: String,
    #[serde(flatten)]
    facts: Facts,
    /// Why it was denied, as a word for programs.
    reason: &'static str,
    /// When it was first asked for.
    asked_at: String,
    /// How often it was asked for.
    times: u64,
    /// How long it is still known.
    seconds_left: u64,
}

impl RequestShape {
    fn of(ask: &Ask) -> Self {
        let (times, left) = ask.counts();
        Self {
            request: ask.id.clone(),
            namespace: ask.address.namespace.clone(),
            sandbox: ask.address.name.clone(),
            run_id: ask.run(),
            state: ask.state().as_str(),
            grant: ask.grant.to_string(),
            facts: ask.facts(),
            reason: ask.reason,
            asked_at: timestamp(ask.asked_at_ms),
            times,
            seconds_left: left.as_secs(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ListOutput {
    /// Oldest first.
    requests: Vec<RequestShape>,
}

impl Operation for NetworkRequests {
    type Input = ListInput;
    type Output = ListOutput;
    const NAME: &'static str = "network_requests";
    const TITLE: &'static str = "List requests for network";
    const DESCRIPTION: &'static str =
        "What sandboxes were denied and a person may grant, and what was denied a short while ago.";
    const ROUTE: Route = Route { method: Method::Get, path: "/network/requests" };
    const TOOLSET: Toolset = Toolset::Network;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: ListInput) -> Result<ListOutput> {
        context.operator_only("listing requests for network")?;
        let all = input.all.unwrap_or(false);
        let wanted = |ask: &Ask| {
            (all || ask.address.namespace == context.namespace)
                && input.sandbox.as_ref().is_none_or(|name| ask.address.name == *name)
        };
        let requests = engine.inner.asks.list();
        Ok(ListOutput {
            requests: requests.iter().filter(|ask| wanted(ask)).map(|ask| RequestShape::of(ask)).collect(),
        })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApproveInput {
    /// As `network_requests` tells it.
    request: AskId,
    /// Default sandbox; run for a sandbox that is gone after its one command.
    scope: Option<Scope>,
    /// How long, e.g. "1h".
    lifetime: Option<Span>,
}

/// What was granted: exactly this.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ApproveOutput {
    request: AskId,
    namespace: Namespace,
    sandbox: SandboxName,
    grant: String,
    #[serde(flatten)]
    facts: Facts,
    scope: Scope,
    /// How long it holds; until it is taken back when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<u64>,
    /// Connections it allows; any number when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u64>,
    /// Requests it allows; any number when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<u64>,
}

impl Operation for ApproveRequest {
    type Input = ApproveInput;
    type Output = ApproveOutput;
    const NAME: &'static str = "approve_request";
    const TITLE: &'static str = "Grant what was asked for";
    const DESCRIPTION: &'static str =
        "Grant exactly what a request names: once, for a run, a sandbox or its namespace.";
    const ROUTE: Route = Route { method: Method::Post, path: "/network/requests/{request}/approve" };
    // No tool: whoever asks for a network does not give it.
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: ApproveInput) -> Result<ApproveOutput> {
        refuse_models(&context)?;
        let lifetime = input.lifetime.map(|span| span.0);
        let approval = engine.inner.approve(&context, &input.request, input.scope, lifetime).await?;
        Ok(ApproveOutput {
            request: input.request,
            namespace: approval.ask.address.namespace.clone(),
            sandbox: approval.ask.address.name.clone(),
            grant: approval.grant.to_string(),
            facts: approval.ask.facts(),
            scope: approval.scope,
            seconds_left: approval.grant.limits.lifetime.map(|lifetime| lifetime.as_secs()),
            connections: approval.grant.limits.connections,
            requests: approval.grant.limits.requests,
        })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DenyInput {
    /// As `network_requests` tells it.
    request: AskId,
}

impl Operation for DenyRequest {
    type Input = DenyInput;
    type Output = DenyOutput;
    const NAME: &'static str = "deny_request";
    const TITLE: &'static str = "Deny what was asked for";
    const DESCRIPTION: &'static str = "Deny what a request names; for ten minutes it is not asked for again.";
    const ROUTE: Route = Route { method: Method::Post, path: "/network/requests/{request}/deny" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Idempotent;

    async fn call(engine: Engine, context: CallContext, input: DenyInput) -> Result<DenyOutput> {
        refuse_models(&context)?;
        let ask = engine.inner.deny(&context, &input.request)?;
        Ok(DenyOutput { denied: RequestShape::of(&ask) })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DenyOutput {
    denied: RequestShape,
}

/// No tool of a model, whatever door it finds.
fn refuse_models(context: &CallContext) -> Result<()> {
    if context.door == Door::Mcp {
        return Err(Error::new(Code::Forbidden, "a model does not answer for the person it works for")
            .next("ask them to run `isle grants approve`"));
    }
    Ok(())
}
