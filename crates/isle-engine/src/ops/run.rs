//! `run`: a command in a fresh sandbox that is gone afterwards.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::install::Wanted;
use crate::network::{AskedGrants, NetworkWish};
use crate::run::{
    AnswerOptions, CodeSource, OneShotSlot, Plan, Program, RunKind, RunTarget, directory, language_of,
    program, text_input,
};
use crate::sandbox::Settings;
use bytes::Bytes;
use isle_api::ops::run::{Input, RunOnce};
use isle_api::shapes::RunResult;
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};
use isle_vault::RequestedSecrets;
use std::sync::Arc;

impl Handler for RunOnce {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<RunResult> {
        let asked = AskedGrants::read(&context, &input.allow, None)?;
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
            backend: input.backend,
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
        let place =
            with_packages(&engine, &context, &program, settings, files, packages, asked.as_ref()).await?;
        let plan = Plan {
            cwd: directory(input.cwd.as_deref())?,
            env: input.env.unwrap_or_default().0,
            input: text_input(input.stdin),
            user: input.user.unwrap_or_default().into(),
            timeout: engine.inner.runs.timeout(input.timeout),
            limits: input.limits.unwrap_or_default(),
            network: NetworkWish::asked(asked),
            secrets: RequestedSecrets::parse(&input.secrets, &input.expose_secrets)?,
            ..Plan::new(kind, place, program)
        };
        let options = AnswerOptions { wait: input.wait, output_limit: input.output_limit };
        engine.inner.runs.answer(&context, plan, options).await
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
    asked: Option<&Arc<AskedGrants>>,
) -> Result<RunTarget> {
    if packages.is_empty() {
        return Ok(RunTarget::OneShot { settings, files, keep: None });
    }
    let Program::Code { language, source, .. } = program else {
        return Err(Error::new(Code::InvalidArgument, "packages are given without code")
            .next("give code in Python or Node, or leave packages out"));
    };
    let inner = &engine.inner;
    let wanted = Wanted::for_language(language_of(language.as_deref(), source)?, packages)?;
    let spec = settings.chosen(context, &inner.config)?.spec(&inner.settings.current(), None)?;
    let mut chosen = wanted.for_image(&spec.image)?;
    // What the run may reach, its packages may come from.
    chosen.asked = asked.cloned();
    let kept = OneShotSlot::default();
    let first = RunTarget::OneShot { settings, files, keep: Some(OneShotSlot::clone(&kept)) };
    inner.installer.install_before(context, first, &chosen).await?;
    match kept.get() {
        Some(guard) => Ok(RunTarget::KeptOneShot { guard: Arc::clone(guard) }),
        None => Err(Error::internal("the sandbox of the packages is gone")),
    }
}
