//! `network_requests`, `approve_request`, `deny_request`: what sandboxes were denied, and a person's answer.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{AskId, Namespace, RunId, SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a request is about, in parts.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Facts {
    pub host: String,
    pub ports: Vec<u16>,
    /// What may be spoken on each of the ports: http, tls, or tcp for anything.
    pub protocols: Vec<&'static str>,
    /// The one request it is about, such as `POST /v1/items`; everything when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
}

impl Facts {
    /// Beside what else is told.
    #[must_use]
    pub fn with(&self, mut told: Value) -> Value {
        if let (Value::Object(told), Ok(Value::Object(facts))) = (&mut told, serde_json::to_value(self)) {
            told.extend(facts);
        }
        told
    }

    /// As words.
    #[must_use]
    pub fn words(&self) -> String {
        let ports: Vec<String> = self
            .ports
            .iter()
            .zip(&self.protocols)
            .map(|(port, protocol)| format!("{port} ({protocol})"))
            .collect();
        let only = self.only.as_ref().map_or_else(String::new, |only| format!(", for {only} only"));
        format!("{}, port {}{only}", self.host, ports.join(" and "))
    }
}

/// For what a request is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Scope {
    /// One connection, or the one request, made within a minute.
    Once,
    /// The run that asked, as long as it goes on.
    Run,
    /// The sandbox, until it is taken back.
    Sandbox,
    /// Every sandbox of the namespace, until it is taken back.
    Namespace,
}

impl Scope {
    /// As text, the same as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Run => "run",
            Self::Sandbox => "sandbox",
            Self::Namespace => "namespace",
        }
    }
}

/// The operation `network_requests`.
#[derive(Debug)]
pub struct NetworkRequests;

/// The operation `approve_request`.
#[derive(Debug)]
pub struct ApproveRequest;

/// The operation `deny_request`.
#[derive(Debug)]
pub struct DenyRequest;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListInput {
    /// Only of this sandbox.
    pub sandbox: Option<SandboxName>,
    /// Those of all namespaces.
    pub all: Option<bool>,
}

/// What a sandbox was denied, and what would be granted.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RequestShape {
    /// For `approve_request` and `deny_request`.
    pub request: AskId,
    pub namespace: Namespace,
    pub sandbox: SandboxName,
    /// The run whose program asked, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// pending, denied or approved.
    pub state: &'static str,
    /// What would be granted, and nothing else.
    pub grant: String,
    #[serde(flatten)]
    pub facts: Facts,
    /// Why it was denied, as a word for programs.
    pub reason: &'static str,
    /// When it was first asked for.
    pub asked_at: String,
    /// How often it was asked for.
    pub times: u64,
    /// How long it is still known.
    pub seconds_left: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ListOutput {
    /// Oldest first.
    pub requests: Vec<RequestShape>,
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
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveInput {
    /// As `network_requests` tells it.
    pub request: AskId,
    /// Default sandbox; run for a sandbox that is gone after its one command.
    pub scope: Option<Scope>,
    /// How long, e.g. "1h".
    pub lifetime: Option<Span>,
}

/// What was granted: exactly this.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApproveOutput {
    pub request: AskId,
    pub namespace: Namespace,
    pub sandbox: SandboxName,
    pub grant: String,
    #[serde(flatten)]
    pub facts: Facts,
    pub scope: Scope,
    /// How long it holds; until it is taken back when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Connections it allows; any number when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Requests it allows; any number when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
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
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DenyInput {
    /// As `network_requests` tells it.
    pub request: AskId,
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
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct DenyOutput {
    pub denied: RequestShape,
}
