//! `secret_set`, `secret_list`, `secret_remove`, `secret_attach`, `secret_detach`: the vault, and which
//! sandbox has what of it. No answer of these has a value in it, and values come in by no tool of a model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::sandbox_or_default;
use super::times::timestamp;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::{Engine, Inner};
use crate::error::{Code, Error, Result};
use crate::sandbox::Sandbox;
use crate::values::{SandboxName, Span};
use crate::vault::{SecretFacts, SecretName, SecretText, Wishes};

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct SecretShape {
    name: SecretName,
    /// Counts up each time it is set.
    version: u64,
    /// Where it may go in the place of its placeholder.
    hosts: Vec<String>,
    set_at: String,
    /// Left out: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    expired: bool,
}

impl From<SecretFacts> for SecretShape {
    fn from(facts: SecretFacts) -> Self {
        Self {
            name: facts.name,
            version: facts.version,
            hosts: facts.hosts,
            set_at: timestamp(facts.set_at_ms),
            expires_at: facts.expires_at_ms.map(timestamp),
            expired: facts.expired,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SetOutput {
    #[serde(flatten)]
    secret: SecretShape,
    /// What to know about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

pub(super) struct SecretSet;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetInput {
    name: SecretName,
    /// Its value; nobody is told it again.
    value: SecretText,
    /// Where it may go, such as "api.example.com" or "*.example.com". Left out: as before.
    hosts: Option<Vec<String>>,
    /// After which time it is no longer used, such as "30d". Left out: never.
    expires: Option<Span>,
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

    async fn call(engine: Engine, context: CallContext, input: SetInput) -> Result<SetOutput> {
        let hosts = input.hosts.map(|hosts| hosts.iter().map(|host| host.parse()).collect::<Result<_>>());
        if input.expires.is_some_and(|span| span.0.is_zero()) {
            return Err(Error::new(Code::InvalidDuration, "expires is 0, so it would never be used")
                .next("write a time such as 30d, or leave it out"));
        }
        let facts = engine
            .inner
            .set_secret(&context, &input.name, &input.value, hosts.transpose()?, input.expires)
            .await?;
        Ok(SetOutput { secret: facts.into(), note: input.value.advice() })
    }
}

pub(super) struct SecretList;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListInput {
    /// Also tell which of them this sandbox has.
    sandbox: Option<SandboxName>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct AttachedShape {
    name: SecretName,
    /// The variable of every command that has it.
    variable: String,
    /// Whether that is the value itself.
    exposed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Secrets {
    /// By name.
    secrets: Vec<SecretShape>,
    /// Those the sandbox has, when one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    attached: Option<Vec<AttachedShape>>,
    /// What keeps them from being used at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    locked: Option<String>,
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

    async fn call(engine: Engine, context: CallContext, input: ListInput) -> Result<Secrets> {
        let inner = &engine.inner;
        let attached = match input.sandbox {
            None => None,
            Some(name) => {
                let address = context.address(&name);
                let sandbox = inner.fleet.get(&address).ok_or_else(|| inner.no_such_sandbox(&address))?;
                Some(attached(inner, &sandbox))
            }
        };
        let locked = inner.vault_trouble().await.map(|error| error.message);
        let secrets = inner.vault.list(&context.namespace).into_iter().map(SecretShape::from).collect();
        Ok(Secrets { secrets, attached, locked })
    }
}

pub(super) fn attached(inner: &Inner, sandbox: &Sandbox) -> Vec<AttachedShape> {
    let shape = |(name, one): (SecretName, crate::vault::Use)| {
        let (variable, exposed) = one.attached?;
        Some(AttachedShape { name, variable, exposed })
    };
    inner.secrets_of(sandbox).all().into_iter().filter_map(shape).collect()
}

pub(super) struct SecretRemove;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveInput {
    name: SecretName,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Removed {
    name: SecretName,
    removed: bool,
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

    async fn call(engine: Engine, context: CallContext, input: RemoveInput) -> Result<Removed> {
        engine.inner.remove_secret(&context, &input.name).await?;
        Ok(Removed { name: input.name, removed: true })
    }
}

pub(super) struct SecretAttach;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AttachInput {
    /// Default "default"; made when it is missing.
    sandbox: Option<SandboxName>,
    /// As placeholders, such as "KEY" or "KEY=VARIABLE".
    #[serde(default)]
    secrets: Vec<String>,
    /// As values, masked in what comes out. For people, unless the operator says otherwise.
    #[serde(default)]
    expose: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Attached {
    sandbox: SandboxName,
    /// All it has now.
    attached: Vec<AttachedShape>,
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

    async fn call(engine: Engine, context: CallContext, input: AttachInput) -> Result<Attached> {
        let inner = &engine.inner;
        let wishes = Wishes::parse(&input.secrets, &input.expose)?;
        if wishes.is_empty() {
            return Err(Error::new(Code::InvalidArgument, "no secret is named")
                .next("name some in `secrets`; secret_list tells which there are"));
        }
        inner.check_wishes(&context, &wishes)?;
        let sandbox = inner.ensure(&context, &sandbox_or_default(input.sandbox)).await?;
        inner.attach_secrets(&context, &sandbox, &wishes)?;
        Ok(Attached { sandbox: sandbox.name.clone(), attached: attached(inner, &sandbox) })
    }
}

pub(super) struct SecretDetach;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DetachInput {
    /// Default "default".
    sandbox: Option<SandboxName>,
    secrets: Vec<SecretName>,
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

    async fn call(engine: Engine, context: CallContext, input: DetachInput) -> Result<Attached> {
        let inner = &engine.inner;
        let address = context.address(&sandbox_or_default(input.sandbox));
        let sandbox = inner.fleet.get(&address).ok_or_else(|| inner.no_such_sandbox(&address))?;
        inner.detach_secrets(&context, &sandbox, &input.secrets)?;
        Ok(Attached { sandbox: sandbox.name.clone(), attached: attached(inner, &sandbox) })
    }
}
