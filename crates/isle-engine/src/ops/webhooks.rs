//! `add_webhook`, `list_webhooks`, `remove_webhook`: where events are sent. Adding and removing are no
//! tools: what happens here is told elsewhere when a person says so.

use super::Handler;
use crate::context::CallContext;
use crate::engine::{Engine, Inner};
use crate::webhooks::{Wanted, Webhook};
use isle_api::ops::webhooks::{
    AddInput, AddWebhook, Added, ListInput, ListWebhooks, Listed, RemoveInput, RemoveWebhook, Removed,
    WebhookShape,
};
use isle_api::times::timestamp;
use isle_core::Result;

fn webhook_shape(inner: &Inner, webhook: &Webhook) -> WebhookShape {
    let progress = webhook.progress();
    let behind = inner.webhooks.behind(&progress);
    let wanted = webhook.wanted.clone();
    WebhookShape {
        webhook: webhook.id.clone(),
        url: wanted.url,
        namespace: webhook.namespace.clone(),
        kinds: wanted.kinds,
        sandbox: wanted.sandbox,
        addresses: wanted.addresses,
        created_at: timestamp(webhook.created_at_ms),
        delivered: progress.delivered,
        lost: progress.lost,
        behind,
        failed_tries: progress.tries,
        last_error: progress.last_error,
        next_try_at: progress.next_try_ms.map(timestamp),
        last_delivered_at: progress.last_delivered_ms.map(timestamp),
    }
}

impl Handler for AddWebhook {
    async fn call(engine: Engine, context: CallContext, input: AddInput) -> Result<Added> {
        let wanted = Wanted {
            url: input.url,
            kinds: input.kind.unwrap_or_default(),
            sandbox: input.sandbox,
            addresses: input.addresses.unwrap_or_default(),
        };
        let (webhook, secret) = engine.inner.webhooks.add(&context, wanted, input.all.unwrap_or(false))?;
        Ok(Added { webhook: webhook.id.clone(), secret, state: webhook_shape(&engine.inner, &webhook) })
    }
}

impl Handler for ListWebhooks {
    async fn call(engine: Engine, context: CallContext, input: ListInput) -> Result<Listed> {
        let found = engine.inner.webhooks.of(&context, input.all.unwrap_or(false))?;
        Ok(Listed { webhooks: found.iter().map(|one| webhook_shape(&engine.inner, one)).collect() })
    }
}

impl Handler for RemoveWebhook {
    async fn call(engine: Engine, context: CallContext, input: RemoveInput) -> Result<Removed> {
        let webhook = engine.inner.webhooks.remove(&context, &input.webhook)?;
        Ok(Removed { removed: webhook_shape(&engine.inner, &webhook) })
    }
}
