//! `run_code`: code in a language, in a named sandbox.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::install::Wanted;
use crate::run::{
    AnswerOptions, CodeSource, Plan, Program, RunKind, directory, language_of, named_target, text_input,
};
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::run_code::{Input, RunCode};
use isle_api::shapes::RunResult;
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};

impl Handler for RunCode {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<RunResult> {
        let source = source(input.code, input.path)?;
        if let Some(packages) = input.packages.filter(|packages| !packages.is_empty()) {
            let language = language_of(input.language.as_deref(), &source)?;
            let name = sandbox_or_default(input.sandbox.clone());
            let image = engine.inner.sandboxes.image_of(&context.address(&name));
            let chosen = Wanted::for_language(language, packages)?.for_image(&image)?;
            engine.inner.installer.install_before(&context, named_target(Some(name)), &chosen).await?;
        }
        let place = named_target(input.sandbox);
        let program = Program::Code {
            language: input.language,
            source,
            args: input.args.unwrap_or_default(),
            restricted: input.restricted.unwrap_or(false),
            context: input.context,
        };
        let plan = Plan {
            cwd: directory(input.cwd.as_deref())?,
            env: input.env.unwrap_or_default().0,
            input: text_input(input.stdin),
            user: input.user.unwrap_or_default().into(),
            timeout: engine.inner.runs.timeout(input.timeout),
            limits: input.limits.unwrap_or_default(),
            lock: input.lock.unwrap_or(false),
            ..Plan::new(RunKind::RunCode, place, program)
        };
        let options = AnswerOptions { wait: input.wait, output_limit: input.output_limit };
        engine.inner.runs.answer(&context, plan, options).await
    }
}

pub(super) fn source(code: Option<String>, path: Option<GuestPath>) -> Result<CodeSource> {
    match (code, path) {
        (Some(code), None) => Ok(CodeSource::Text(code)),
        (None, Some(path)) => Ok(CodeSource::File(path)),
        (Some(_), Some(_)) => Err(Error::new(Code::InvalidArgument, "code and path are both given")
            .next("give the code itself, or the path of a file that holds it")),
        (None, None) => Err(Error::new(Code::InvalidArgument, "neither code nor path is given")
            .next("give the code itself, or the path of a file that holds it")),
    }
}
