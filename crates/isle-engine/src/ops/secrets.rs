//! `secret_set`, `secret_list`, `secret_remove`, `secret_attach`, `secret_detach`: the vault, and which
//! sandbox has what of it. No answer of these has a value in it, and values come in by no tool of a model.

use super::Handler;
use crate::context::CallContext;
use crate::engine::{Engine, Inner};
use crate::sandbox::Sandbox;
use crate::secrets::{SecretFacts, WantedScope};
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::secrets::{
    AttachInput, Attached, AttachedShape, DetachInput, ListInput, RemoveInput, Removed, SecretAttach,
    SecretDetach, SecretList, SecretRemove, SecretSet, SecretShape, Secrets, SetInput, SetOutput,
};
use isle_api::times::timestamp;
use isle_core::values::SecretName;
use isle_core::{Code, Error, Result};
use isle_vault::{RequestedSecrets, parse_places};

impl From<SecretFacts> for SecretShape {
    fn from(facts: SecretFacts) -> Self {
        Self {
            name: facts.name,
            version: facts.version,
            hosts: facts.scope.hosts,
            places: facts.scope.places.texts(),
            set_at: timestamp(facts.set_at_ms),
            expires_at: facts.expires_at_ms.map(timestamp),
            expired: facts.expired,
        }
    }
}

impl Handler for SecretSet {
    async fn call(engine: Engine, context: CallContext, input: SetInput) -> Result<SetOutput> {
        let hosts = input.hosts.map(|hosts| hosts.iter().map(|host| host.parse()).collect::<Result<_>>());
        if input.expires.is_some_and(|span| span.0.is_zero()) {
            return Err(Error::new(Code::InvalidDuration, "expires is 0, so it would never be used")
                .next("write a time such as 30d, or leave it out"));
        }
        let places = input.places.map(|places| parse_places(&places));
        let wanted = WantedScope { hosts: hosts.transpose()?, places: places.transpose()? };
        let facts = engine
            .inner
            .secrets
            .set_secret(&context, &input.name, &input.value, wanted, input.expires)
            .await?;
        Ok(SetOutput { secret: facts.into(), note: input.value.advice() })
    }
}

/// What is not protected.
const REMAINS: &str = "responses are masked, and a server that changes a value before it sends it back (encrypted, reversed, cut, in several answers) still gives it away";

impl Handler for SecretList {
    async fn call(engine: Engine, context: CallContext, input: ListInput) -> Result<Secrets> {
        let inner = &engine.inner;
        let attached = match input.sandbox {
            None => None,
            Some(name) => {
                let address = context.address(&name);
                let sandbox =
                    inner.fleet.get(&address).ok_or_else(|| inner.fleet.no_such_sandbox(&address))?;
                Some(attached(inner, &sandbox))
            }
        };
        let locked = inner.secrets.vault_trouble().await.map(|error| error.message);
        let secrets = inner.vault.list(&context.namespace).into_iter().map(SecretShape::from).collect();
        Ok(Secrets { secrets, attached, remains: REMAINS, locked })
    }
}

pub(super) fn attached(inner: &Inner, sandbox: &Sandbox) -> Vec<AttachedShape> {
    let shape = |(name, one): (SecretName, crate::secrets::SecretUse)| {
        let (variable, exposed) = one.attached?;
        Some(AttachedShape { name, variable, exposed })
    };
    inner.secrets.secrets_of(sandbox).all().into_iter().filter_map(shape).collect()
}

impl Handler for SecretRemove {
    async fn call(engine: Engine, context: CallContext, input: RemoveInput) -> Result<Removed> {
        engine.inner.secrets.remove_secret(&context, &input.name).await?;
        Ok(Removed { name: input.name, removed: true })
    }
}

impl Handler for SecretAttach {
    async fn call(engine: Engine, context: CallContext, input: AttachInput) -> Result<Attached> {
        let inner = &engine.inner;
        let requested = RequestedSecrets::parse(&input.secrets, &input.expose)?;
        if requested.is_empty() {
            return Err(Error::new(Code::InvalidArgument, "no secret is named")
                .next("name some in `secrets`; secret_list tells which there are"));
        }
        inner.secrets.check_requested_secrets(&context, &requested)?;
        let sandbox = inner.sandboxes.ensure(&context, &sandbox_or_default(input.sandbox)).await?;
        inner.secrets.attach_secrets(&context, &sandbox, &requested)?;
        Ok(Attached { sandbox: sandbox.name.clone(), attached: attached(inner, &sandbox) })
    }
}

impl Handler for SecretDetach {
    async fn call(engine: Engine, context: CallContext, input: DetachInput) -> Result<Attached> {
        let inner = &engine.inner;
        let address = context.address(&sandbox_or_default(input.sandbox));
        let sandbox = inner.fleet.get(&address).ok_or_else(|| inner.fleet.no_such_sandbox(&address))?;
        inner.secrets.detach_secrets(&context, &sandbox, &input.secrets)?;
        Ok(Attached { sandbox: sandbox.name.clone(), attached: attached(inner, &sandbox) })
    }
}
