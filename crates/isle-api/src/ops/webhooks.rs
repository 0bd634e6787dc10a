//! `add_webhook`, `list_webhooks`, `remove_webhook`: where events are sent. Adding and removing are no
//! tools: what happens here is told elsewhere when a person says so.

use crate::event_kind::EventKind;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{Namespace, SandboxName, WebhookId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct WebhookShape {
    pub webhook: WebhookId,
    pub url: String,
    /// Whose events; left out: everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Only these kinds; empty: all.
    pub kinds: Vec<EventKind>,
    /// Only of this sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxName>,
    /// Addresses that are not public and that its name may lead to.
    pub addresses: Vec<String>,
    pub created_at: String,
    /// Events sent since the daemon started.
    pub delivered: u64,
    /// Events that were gone before they could be sent.
    pub lost: u64,
    /// Events that wait while sending fails, those that were not asked for included.
    pub behind: u64,
    /// Failed tries since the last that worked.
    pub failed_tries: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivered_at: Option<String>,
}

/// The operation `add_webhook`.
#[derive(Debug)]
pub struct AddWebhook;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddInput {
    /// Where to: https://HOST/PATH, or http:// to an address of this machine or of a private network.
    pub url: String,
    /// Only these kinds.
    pub kind: Option<Vec<EventKind>>,
    /// Only of this sandbox.
    pub sandbox: Option<SandboxName>,
    /// The events of all namespaces.
    pub all: Option<bool>,
    /// Addresses that are not public and that the name may lead to, such as 10.0.0.0/8.
    pub addresses: Option<Vec<String>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Added {
    pub webhook: WebhookId,
    /// What its signatures are made with; shown this once, kept nowhere.
    pub secret: String,
    /// How it stands.
    pub state: WebhookShape,
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
}

/// The operation `list_webhooks`.
#[derive(Debug)]
pub struct ListWebhooks;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListInput {
    /// Those of all namespaces, and those for all.
    pub all: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Listed {
    /// Oldest first.
    pub webhooks: Vec<WebhookShape>,
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
}

/// The operation `remove_webhook`.
#[derive(Debug)]
pub struct RemoveWebhook;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveInput {
    /// As list_webhooks tells it.
    pub webhook: WebhookId,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Removed {
    /// As it was.
    pub removed: WebhookShape,
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
}
