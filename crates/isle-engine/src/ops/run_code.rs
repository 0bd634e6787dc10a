//! `run_code`: code in a language, in a named sandbox.

use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::{Environment, RunArguments, User, named_place, sandbox_or_default};
use super::shapes::RunResult;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::install::Wanted;
use crate::run::{CodeSource, Program, RunKind, RunLimits, language_of};
use crate::values::{ByteSize, ContextName, GuestPath, SandboxName, Span};
use crate::vault::Wishes;

pub(super) struct RunCode;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: Option<SandboxName>,
    /// The code. Give this or path.
    code: Option<String>,
    /// File in the sandbox to run.
    path: Option<GuestPath>,
    /// python, node or shell; else detected.
    language: Option<String>,
    /// Arguments of the code.
    args: Option<Vec<String>>,
    cwd: Option<String>,
    env: Option<Environment>,
    stdin: Option<String>,
    user: Option<User>,
    timeout: Option<Span>,
    limits: Option<RunLimits>,
    lock: Option<bool>,
    wait: Option<Span>,
    output_limit: Option<ByteSize>,
    /// Shell only: no cd, no redirects, no paths.
    restricted: Option<bool>,
    /// Keeps variables and cwd under this name.
    context: Option<ContextName>,
    /// Installed first, by pip or npm.
    packages: Option<Vec<String>>,
}

impl Operation for RunCode {
    type Input = Input;
    type Output = RunResult;
    const NAME: &'static str = "run_code";
    const TITLE: &'static str = "Run code";
    const DESCRIPTION: &'static str = "Run Python, Node or shell code, by text or file; values, tables and figures come back. With context, variables stay. Other arguments as in exec.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/code" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<RunResult> {
        let source = source(input.code, input.path)?;
        if let Some(packages) = input.packages.filter(|packages| !packages.is_empty()) {
            let language = language_of(input.language.as_deref(), &source)?;
            let name = sandbox_or_default(input.sandbox.clone());
            let image = engine.inner.image_of(&context.address(&name));
            let chosen = Wanted::for_language(language, packages)?.for_image(&image)?;
            engine.inner.install_before(&context, named_place(Some(name)), &chosen).await?;
        }
        let arguments = RunArguments {
            kind: RunKind::RunCode,
            place: named_place(input.sandbox),
            program: Program::Code {
                language: input.language,
                source,
                args: input.args.unwrap_or_default(),
                restricted: input.restricted.unwrap_or(false),
                context: input.context,
            },
            cwd: input.cwd,
            env: input.env,
            stdin: input.stdin,
            user: input.user,
            timeout: input.timeout,
            limits: input.limits,
            lock: input.lock,
            allow: Vec::new(),
            secrets: Wishes::default(),
            wait: input.wait,
            output_limit: input.output_limit,
        };
        arguments.call(&engine.inner, &context).await
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
