//! `network_requests`, `approve_request`, `deny_request`: what sandboxes were denied, and a person's answer.

use super::Handler;
use crate::context::{CallContext, Door};
use crate::engine::Engine;
use crate::network::NetworkRequest;
use isle_api::ops::requests::{
    ApproveInput, ApproveOutput, ApproveRequest, DenyInput, DenyOutput, DenyRequest, ListInput, ListOutput,
    NetworkRequests, RequestShape,
};
use isle_api::times::timestamp;
use isle_core::{Code, Error, Result};

fn request_shape(ask: &NetworkRequest) -> RequestShape {
    let (times, left) = ask.counts();
    RequestShape {
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

impl Handler for NetworkRequests {
    async fn call(engine: Engine, context: CallContext, input: ListInput) -> Result<ListOutput> {
        context.operator_only("listing requests for network")?;
        let all = input.all.unwrap_or(false);
        let wanted = |ask: &NetworkRequest| {
            (all || ask.address.namespace == context.namespace)
                && input.sandbox.as_ref().is_none_or(|name| ask.address.name == *name)
        };
        let requests = engine.inner.network.list_requests();
        Ok(ListOutput {
            requests: requests.iter().filter(|ask| wanted(ask)).map(|ask| request_shape(ask)).collect(),
        })
    }
}

impl Handler for ApproveRequest {
    async fn call(engine: Engine, context: CallContext, input: ApproveInput) -> Result<ApproveOutput> {
        refuse_models(&context)?;
        let lifetime = input.lifetime.map(|span| span.0);
        let approval = engine.inner.network.approve(&context, &input.request, input.scope, lifetime).await?;
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

impl Handler for DenyRequest {
    async fn call(engine: Engine, context: CallContext, input: DenyInput) -> Result<DenyOutput> {
        refuse_models(&context)?;
        let ask = engine.inner.network.deny(&context, &input.request)?;
        Ok(DenyOutput { denied: request_shape(&ask) })
    }
}

/// No tool of a model, whatever door it finds.
fn refuse_models(context: &CallContext) -> Result<()> {
    if context.door == Door::Mcp {
        return Err(Error::new(Code::Forbidden, "a model does not answer for the person it works for")
            .next("ask them to run `isle grants approve`"));
    }
    Ok(())
}
