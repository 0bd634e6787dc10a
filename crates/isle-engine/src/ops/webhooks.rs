//! `add_webhook`, `list_webhooks`, `remove_webhook`: where events are sent. Adding and removing are no
//! tools: what happens here is told elsewhere when a person says so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::times::timestamp;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::{Engine, Inner};
use crate::error::Result;
use crate::events::EventKind;
use crate::values::{Namespace, SandboxName, WebhookId};
use crate::webhooks::{Wanted, Webhook};

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct WebhookShape {
    webhook: WebhookId,
    url: String,
    /// Whose events; left out: everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Namespace>,
    /// Only these kinds; empty: all.
    kinds: Vec<EventKind>,
    /// Only of this sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<SandboxName>,
    /// Addresses that are not public and that its name may lead to.
    addresses: Vec<String>,
    created_at: String,
    /// Events sent since the daemon started.
    delivered: u64,
    /// Events that were gone before they could be sent.
    lost: u64,
    /// Events that wait while sending fails, those that were not asked for included.
    behind: u64,
    /// Failed tries since the last that worked.
    failed_tries: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_delivered_at: Option<String>,
}

impl WebhookShape {
    fn of(inner: &Inner, webhook: &Webhook) -> Self {
        let progress = webhook.progress();
        let behind = inner.behind(&progress);
        let wanted = webhook.wanted.clone();
        Self {
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
}

pub(super) struct AddWebhook;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AddInput {
    /// Where to: https://HOST/PATH, or http:// to an address of this machine or of a private network.
    url: String,
    /// Only these kinds.
    kind: Option<Vec<EventKind>>,
    /// Only of this sandbox.
    sandbox: Option<SandboxName>,
    /// The events of all namespaces.
    all: Option<bool>,
    /// Addresses that are not public and that the name may lead to, such as 10.0.0.0/8.
    addresses: Option<Vec<String>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Added {
    webhook: WebhookId,
    /// What its signatures are made with; shown this once, kept nowhere.
    secret: String,
    /// How it stands.
    state: WebhookShape,
}

impl Operation for AddWebhook {
    type Input = AddInput;
    type Output = Added;
    const NAME: &'static str = "add_webhook";
    const TITLE: &'static str = "Add a webhook";
    const DESCRIPTION: &'static str =
        "Have the events of the namespace sent to an address of the web, signed, from now on.";
    const ROUTE: Route = Route { method: Method::Post, path: "/webhooks" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: AddInput) -> Result<Added> {
        let wanted = Wanted {
            url: input.url,
            kinds: input.kind.unwrap_or_default(),
            sandbox: input.sandbox,
            addresses: input.addresses.unwrap_or_default(),
        };
        let (webhook, secret) = engine.inner.add_webhook(&context, wanted, input.all.unwrap_or(false))?;
        Ok(Added { webhook: webhook.id.clone(), secret, state: WebhookShape::of(&engine.inner, &webhook) })
    }
}

pub(super) struct ListWebhooks;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListInput {
    /// Those of all namespaces, and those for all.
    all: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Listed {
    /// Oldest first.
    webhooks: Vec<WebhookShape>,
}

impl Operation for ListWebhooks {
    type Input = ListInput;
    type Output = Listed;
    const NAME: &'static str = "list_webhooks";
    const TITLE: &'static str = "List webhooks";
    const DESCRIPTION: &'static str =
        "Where events are sent, and how each receiver fares: sent, behind, lost, last error.";
    const ROUTE: Route = Route { method: Method::Get, path: "/webhooks" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: ListInput) -> Result<Listed> {
        let found = engine.inner.webhooks_of(&context, input.all.unwrap_or(false))?;
        Ok(Listed { webhooks: found.iter().map(|one| WebhookShape::of(&engine.inner, one)).collect() })
    }
}

pub(super) struct RemoveWebhook;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveInput {
    /// As list_webhooks tells it.
    webhook: WebhookId,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Removed {
    /// As it was.
    removed: WebhookShape,
}

impl Operation for RemoveWebhook {
    type Input = RemoveInput;
    type Output = Removed;
    const NAME: &'static str = "remove_webhook";
    const TITLE: &'static str = "Remove a webhook";
    const DESCRIPTION: &'static str = "Send nothing more there. Its secret is worth nothing afterwards.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/webhooks/{webhook}" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Destroys;

    async fn call(engine: Engine, context: CallContext, input: RemoveInput) -> Result<Removed> {
        let webhook = engine.inner.remove_webhook(&context, &input.webhook)?;
        Ok(Removed { removed: WebhookShape::of(&engine.inner, &webhook) })
    }
}
