//! `run`: a command in a fresh sandbox that is gone afterwards.

use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::{Environment, RunArguments, User, argv, files, program};
use super::shapes::RunResult;
use super::write_files::FileInput;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::Tier;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::install::Wanted;
use crate::network::Granting;
use crate::run::{CodeSource, Kept, Place, Program, RunKind, RunLimits, language_of};
use crate::sandbox::Settings;
use crate::values::{ByteSize, GuestPath, Span};
use crate::vault::Wishes;

pub(super) struct RunOnce;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Shell text. Give this, argv or code.
    command: Option<String>,
    /// Program and arguments, no shell.
    #[serde(default, deserialize_with = "argv")]
    argv: Option<Vec<String>>,
    /// Code in a language.
    code: Option<String>,
    /// python, node or shell; detected when left out.
    language: Option<String>,
    /// Files placed before the command starts.
    #[serde(default, deserialize_with = "files")]
    files: Vec<FileInput>,
    /// Absolute; default /workspace.
    cwd: Option<String>,
    /// Extra variables.
    env: Option<Environment>,
    /// Text for standard input.
    stdin: Option<String>,
    /// As whom: sandbox (default) or root of the sandbox.
    user: Option<User>,
    /// Ends the whole tree after.
    timeout: Option<Span>,
    /// Of each process, e.g. {"cpu": "10s", "memory": "64M"}.
    limits: Option<RunLimits>,
    /// Answer after this at the latest; the run goes on.
    wait: Option<Span>,
    /// Output in the answer.
    output_limit: Option<ByteSize>,
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
    /// Settings under a name of the configuration; what is given here is stronger.
    profile: Option<String>,
    /// What it may reach, such as "example.com:443".
    #[serde(default)]
    allow: Vec<String>,
    /// Secrets it has as placeholders, such as "KEY" or "KEY=VARIABLE".
    #[serde(default)]
    secrets: Vec<String>,
    /// Secrets it has as values, masked in its output.
    #[serde(default)]
    expose_secrets: Vec<String>,
    /// Python or Node packages, installed before the code runs.
    packages: Option<Vec<String>>,
}

impl Operation for RunOnce {
    type Input = Input;
    type Output = RunResult;
    const NAME: &'static str = "run";
    const TITLE: &'static str = "Run once";
    const DESCRIPTION: &'static str = "Run a command in a fresh sandbox that is gone afterwards.";
    const ROUTE: Route = Route { method: Method::Post, path: "/runs" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<RunResult> {
        let asked = engine.inner.asked(&context, &input.allow, None).await?;
        let packages = input.packages.unwrap_or_default();
        let (kind, program) = match input.code {
            Some(code) if input.command.is_none() && input.argv.as_ref().is_none_or(Vec::is_empty) => {
                let source = CodeSource::Text(code);
                let code = Program::Code {
                    language: input.language,
                    source,
                    args: Vec::new(),
                    restricted: false,
                    context: None,
                };
                (RunKind::RunCode, code)
            }
            Some(_) => {
                return Err(Error::new(Code::InvalidArgument, "code is given beside command or argv")
                    .next("give exactly one of command, argv and code"));
            }
            None if input.language.is_some() => {
                return Err(Error::new(Code::InvalidArgument, "language is given without code")
                    .next("give the code, or leave language out"));
            }
            None => (RunKind::Exec, program(input.command, input.argv)?),
        };
        let files = input
            .files
            .into_iter()
            .map(|file| Ok((file.path.clone(), file.contents()?)))
            .collect::<Result<Vec<(GuestPath, Bytes)>>>()?;
        let settings = Settings {
            tier: input.tier,
            image: input.image,
            memory: input.memory,
            cpus: input.cpus,
            pids: input.pids,
            disk: input.disk,
            allow_downgrade: input.allow_downgrade,
            profile: input.profile,
            ..Settings::default()
        };
        let mut env = input.env.unwrap_or_default();
        asked.dress(&mut env.0);
        let arguments = RunArguments {
            kind,
            place: with_packages(&engine, &context, &program, settings, files, packages, &asked).await?,
            program,
            cwd: input.cwd,
            env: Some(env),
            stdin: input.stdin,
            user: input.user,
            timeout: input.timeout,
            limits: input.limits,
            lock: None,
            allow: asked.grants,
            secrets: Wishes::parse(&input.secrets, &input.expose_secrets)?,
            wait: input.wait,
            output_limit: input.output_limit,
        };
        arguments.call(&engine.inner, &context).await
    }
}

/// The place of the run; with packages, one in which they are installed.
async fn with_packages(
    engine: &Engine,
    context: &CallContext,
    program: &Program,
    settings: Settings,
    files: Vec<(GuestPath, Bytes)>,
    packages: Vec<String>,
    asked: &Granting,
) -> Result<Place> {
    if packages.is_empty() {
        return Ok(Place::OneShot { settings, files, keep: None });
    }
    let Program::Code { language, source, .. } = program else {
        return Err(Error::new(Code::InvalidArgument, "packages are given without code")
            .next("give code in Python or Node, or leave packages out"));
    };
    let inner = &engine.inner;
    let wanted = Wanted::for_language(language_of(language.as_deref(), source)?, packages)?;
    let spec = settings.spec(&inner.current(), None)?;
    let mut chosen = wanted.for_image(&spec.image)?;
    // What the run may reach, its packages may come from.
    chosen.granting = asked.clone();
    let kept = Kept::default();
    let first = Place::OneShot { settings, files, keep: Some(Kept::clone(&kept)) };
    inner.install_before(context, first, &chosen).await?;
    match kept.get() {
        Some(guard) => Ok(Place::Held { guard: Arc::clone(guard) }),
        None => Err(Error::internal("the sandbox of the packages is gone")),
    }
}
