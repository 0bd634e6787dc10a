//! `secret_set`, `secret_list`, `secret_remove`, `secret_attach`, `secret_detach`: the vault, and which
//! sandbox has what of it. No answer of these has a value in it, and values come in by no tool of a model.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{SandboxName, SecretName, SecretText, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SecretShape {
    pub name: SecretName,
    /// Counts up each time it is set.
    pub version: u64,
    /// Where it may go in the place of its placeholder.
    pub hosts: Vec<String>,
    /// Where in a request it may be placed.
    pub places: Vec<String>,
    pub set_at: String,
    /// Left out: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    pub expired: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct SetOutput {
    #[serde(flatten)]
    pub secret: SecretShape,
    /// What to know about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The operation `secret_set`.
#[derive(Debug)]
pub struct SecretSet;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetInput {
    pub name: SecretName,
    /// Its value; nobody is told it again.
    pub value: SecretText,
    /// Where it may go, such as "api.example.com" or "*.example.com". Left out: as before.
    pub hosts: Option<Vec<String>>,
    /// Where in a request it may be placed: "default", "authorization", "api-key", "basic-user",
    /// "header:NAME", "query:NAME", "method:NAME". Left out: as before, or "default".
    pub places: Option<Vec<String>>,
    /// After which time it is no longer used, such as "30d". Left out: never.
    pub expires: Option<Span>,
}

impl Operation for SecretSet {
    type Input = SetInput;
    type Output = SetOutput;
    const NAME: &'static str = "secret_set";
    const TITLE: &'static str = "Set a secret";
    const DESCRIPTION: &'static str = "Set a secret of the namespace, or give it another value, which holds at once. The value is sealed and never told again.";
    const ROUTE: Route = Route { method: Method::Post, path: "/secrets" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Changes;
}

/// The operation `secret_list`.
#[derive(Debug)]
pub struct SecretList;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListInput {
    /// Also tell which of them this sandbox has.
    pub sandbox: Option<SandboxName>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct AttachedShape {
    pub name: SecretName,
    /// The variable of every command that has it.
    pub variable: String,
    /// Whether that is the value itself.
    pub exposed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Secrets {
    /// By name.
    pub secrets: Vec<SecretShape>,
    /// Those the sandbox has, when one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<Vec<AttachedShape>>,
    /// What no placement and no masking keeps from whoever uses a placeholder.
    pub remains: &'static str,
    /// What keeps them from being used at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked: Option<String>,
}

impl Operation for SecretList {
    type Input = ListInput;
    type Output = Secrets;
    const NAME: &'static str = "secret_list";
    const TITLE: &'static str = "List secrets";
    const DESCRIPTION: &'static str = "Secrets of the namespace: names, hosts, versions, expiry; never values. With sandbox, which of them it has.";
    const ROUTE: Route = Route { method: Method::Get, path: "/secrets" };
    const TOOLSET: Toolset = Toolset::Secrets;
    const EFFECT: Effect = Effect::Reads;
}

/// The operation `secret_remove`.
#[derive(Debug)]
pub struct SecretRemove;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveInput {
    pub name: SecretName,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Removed {
    pub name: SecretName,
    pub removed: bool,
}

impl Operation for SecretRemove {
    type Input = RemoveInput;
    type Output = Removed;
    const NAME: &'static str = "secret_remove";
    const TITLE: &'static str = "Remove a secret";
    const DESCRIPTION: &'static str =
        "Forget a secret of the namespace. Nobody gets it from now on; its placeholders stay placeholders.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/secrets/{name}" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Destroys;
}

/// The operation `secret_attach`.
#[derive(Debug)]
pub struct SecretAttach;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachInput {
    /// Default "default"; made when it is missing.
    pub sandbox: Option<SandboxName>,
    /// As placeholders, such as "KEY" or "KEY=VARIABLE".
    #[serde(default)]
    pub secrets: Vec<String>,
    /// As values, masked in what comes out. For people, unless the operator says otherwise.
    #[serde(default)]
    pub expose: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Attached {
    pub sandbox: SandboxName,
    /// All it has now.
    pub attached: Vec<AttachedShape>,
}

impl Operation for SecretAttach {
    type Input = AttachInput;
    type Output = Attached;
    const NAME: &'static str = "secret_attach";
    const TITLE: &'static str = "Give a sandbox secrets";
    const DESCRIPTION: &'static str = "Give every command of a sandbox secrets, as variables. Commands see placeholders; requests to the hosts of a secret carry its value instead. Values are never shown.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/secrets" };
    const TOOLSET: Toolset = Toolset::Secrets;
    const EFFECT: Effect = Effect::Idempotent;
}

/// The operation `secret_detach`.
#[derive(Debug)]
pub struct SecretDetach;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetachInput {
    /// Default "default".
    pub sandbox: Option<SandboxName>,
    pub secrets: Vec<SecretName>,
}

impl Operation for SecretDetach {
    type Input = DetachInput;
    type Output = Attached;
    const NAME: &'static str = "secret_detach";
    const TITLE: &'static str = "Take secrets from a sandbox";
    const DESCRIPTION: &'static str = "Take secrets of a sandbox back: new commands do not get them, and their placeholders are no longer swapped.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/secrets/detach" };
    const TOOLSET: Toolset = Toolset::Secrets;
    const EFFECT: Effect = Effect::Changes;
}
