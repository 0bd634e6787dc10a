//! `create`: a named sandbox with settings of its own.

use super::Handler;
use super::list::sandbox_brief;
use super::write_files::{checked, write};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::sandbox::Settings;
use crate::variables::{Change, check_value};
use isle_api::inputs::Environment;
use isle_api::ops::create::{Create, Input, Output};
use isle_core::Result;
use isle_vault::RequestedSecrets;
use isle_wire::GuestUser;

impl Handler for Create {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let allow = engine.inner.grant_sets.asked(&context, &input.allow).await?.grants;
        let secrets = RequestedSecrets::parse(&input.secrets, &input.expose_secrets)?;
        engine.inner.secrets.check_requested_secrets(&context, &secrets)?;
        let settings = Settings {
            backend: input.backend,
            tier: input.tier,
            image: input.image,
            memory: input.memory,
            cpus: input.cpus,
            pids: input.pids,
            disk: input.disk,
            allow_downgrade: input.allow_downgrade,
            ttl: input.ttl,
            idle: input.idle,
            profile: input.profile,
        };
        let files = checked(input.files, engine.inner.config.file_cap)?;
        let env = input.env.map(|Environment(pairs)| pairs).unwrap_or_default();
        let set = env.into_iter().map(|(name, value)| Ok((name.parse()?, value)));
        let change = Change { set: set.collect::<Result<_>>()?, unset: Vec::new() };
        change.set.iter().try_for_each(|(name, value)| check_value(name, value))?;
        engine.inner.config.secret_names.judge(change.set.iter().map(|(name, _)| name.as_str()))?;
        let sandbox = engine.inner.sandboxes.create_named(&context, &input.sandbox, &settings).await?;
        if !allow.is_empty() {
            engine.inner.network.allow(&context, &sandbox, &allow).await?;
        }
        if !secrets.is_empty() {
            engine.inner.secrets.attach_secrets(&context, &sandbox, &secrets)?;
        }
        if !change.set.is_empty() {
            engine.inner.variables.change(&context, &input.sandbox, &change)?;
        }
        if !files.is_empty() {
            write(&engine, &context, &sandbox, GuestUser::Sandbox, files).await?;
        }
        Ok(Output {
            brief: sandbox_brief(&sandbox),
            limits: sandbox.spec.limits.clone(),
            containment: sandbox.containment().cloned(),
        })
    }
}
