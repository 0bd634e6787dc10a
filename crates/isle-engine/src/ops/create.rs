//! `create`: a named sandbox with settings of its own.

use isle_wire::GuestUser;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{Environment, files};
use super::list::SandboxBrief;
use super::write_files::{FileInput, checked, write};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::{Containment, Limits, Tier};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::sandbox::Settings;
use crate::values::{ByteSize, SandboxName, Term};
use crate::variables::{Change, check_value};
use crate::vault::Wishes;

pub(super) struct Create;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Its name.
    sandbox: SandboxName,
    /// How strongly isolated.
    tier: Option<Tier>,
    /// Which image.
    image: Option<String>,
    /// Memory limit.
    memory: Option<ByteSize>,
    /// CPUs, such as 0.5.
    cpus: Option<f64>,
    /// Limit on processes and threads.
    pids: Option<u32>,
    /// Limit on what it writes.
    disk: Option<ByteSize>,
    /// Accept less than the tier promises where the host cannot do it.
    allow_downgrade: Option<bool>,
    /// How long it lives, e.g. 2h, whatever goes on in it.
    ttl: Option<Term>,
    /// How long it lives unused, e.g. 30m.
    idle: Option<Term>,
    /// Settings under a name of the configuration; what is given here is stronger.
    profile: Option<String>,
    /// What it may reach, such as "example.com:443".
    #[serde(default)]
    allow: Vec<String>,
    /// Secrets every command has as placeholders, such as "KEY" or "KEY=VARIABLE".
    #[serde(default)]
    secrets: Vec<String>,
    /// Secrets every command has as values, masked in what comes out.
    #[serde(default)]
    expose_secrets: Vec<String>,
    /// Files placed in it.
    #[serde(default, deserialize_with = "files")]
    files: Vec<FileInput>,
    /// Variables of every command in it.
    env: Option<Environment>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// The sandbox.
    #[serde(flatten)]
    brief: SandboxBrief,
    /// What it may use.
    limits: Limits,
    /// What is enforced.
    containment: Option<Containment>,
}

impl Operation for Create {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "create";
    const TITLE: &'static str = "Create a sandbox";
    const DESCRIPTION: &'static str = "Make a named sandbox with settings of its own. Sandboxes are also made on first use, with the defaults.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes" };
    const TOOLSET: Toolset = Toolset::Lifecycle;
    const EFFECT: Effect = Effect::Idempotent;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let allow = engine.inner.asked(&context, &input.allow, None).await?.grants;
        let secrets = Wishes::parse(&input.secrets, &input.expose_secrets)?;
        engine.inner.check_wishes(&context, &secrets)?;
        let settings = Settings {
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
        let sandbox = engine.inner.create_named(&context, &input.sandbox, &settings).await?;
        if !allow.is_empty() {
            engine.inner.allow(&context, &sandbox, &allow).await?;
        }
        if !secrets.is_empty() {
            engine.inner.attach_secrets(&context, &sandbox, &secrets)?;
        }
        if !change.set.is_empty() {
            engine.inner.change_variables(&context, &input.sandbox, &change)?;
        }
        if !files.is_empty() {
            write(&engine, &context, &sandbox, GuestUser::Sandbox, files).await?;
        }
        Ok(Output {
            brief: SandboxBrief::of(&sandbox),
            limits: sandbox.spec.limits.clone(),
            containment: sandbox.containment().cloned(),
        })
    }
}
