//! `bridge`: JSON from one sandbox, or from the caller, into another one, whatever languages they speak:
//! as a file, and as a variable of the contexts that are there.

use super::Handler;
use crate::agent::FileToWrite;
use crate::context::CallContext;
use crate::engine::{Engine, Inner};
use crate::failpoint;
use crate::journal::Audit;
use crate::run::{CodeSource, OnCancel, Plan, Program, RunKind, RunTarget};
use crate::sandbox::Sandbox;
use futures::StreamExt;
use isle_api::Operation;
use isle_api::ops::bridge::{Bridge, Input, Output};
use isle_api::shapes::{RunResult, RunState};
use isle_core::values::{ByteSize, ContextName, GuestPath, SandboxName, Span};
use isle_core::{Code, Error, Result, strict_json};
use isle_fail::Point;
use isle_wire::{CodeLanguage, GuestUser};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most that is handed over at once, as JSON.
const CAP: ByteSize = ByteSize::mib(1);

/// How long a context may take to give or take something; it may be busy.
const PATIENCE: Span = Span::seconds(30);

/// Where data arrives, in the workspace.
const DIRECTORY: &str = "isle_data";

impl Handler for Bridge {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let source = source(&input)?;
        let target = inner.sandboxes.looked_at(&context, &input.sandbox).await?;
        let value = fetch(inner, &context, source).await?;
        let text = value.to_string();
        if text.len() as u64 > CAP.0 {
            return Err(too_large(text.len() as u64));
        }
        let name = match input.name {
            Some(name) => name,
            None => "data".parse()?,
        };
        let bytes = text.len();
        let path: GuestPath = format!("{DIRECTORY}/{name}.json").parse()?;
        let known = contexts(&target).await?;
        if let Some(only) = &input.to_context
            && !known.iter().any(|(known, _)| known == only)
        {
            return Err(no_context(only));
        }
        let file = FileToWrite::whole(path.clone(), Some(0o644), false, text.into_bytes().into());
        target.agent()?.write_files(GuestUser::Sandbox, vec![file]).await?;
        failpoint(Point::BridgeWritten)?;
        let detail = json!({ "from": input.from, "path": path, "bytes": bytes });
        inner
            .journal
            .audit(&Audit::files(&context, Self::NAME, &target, detail))
            .map_err(|error| error.unrecorded("the data was handed over"))?;
        isle_fail::pass(Point::BridgeAudited);
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let wanted = |one: &ContextName| input.to_context.as_ref().is_none_or(|only| only == one);
        for (one, language) in known.iter().filter(|(one, _)| wanted(one)) {
            let taken = show_data(inner, &context, &target, one, *language, &name, &path).await;
            if taken.is_ok() { with.push(one.to_string()) } else { without.push(one.to_string()) }
        }
        Ok(Output { sandbox: input.sandbox, path: path.absolute(), name, bytes, contexts: with, without })
    }
}

/// Where data comes from.
#[derive(Debug)]
enum Source {
    Value(Value),
    File(SandboxName, GuestPath),
    Variable(SandboxName, ContextName, String),
}

fn source(input: &Input) -> Result<Source> {
    let refuse = |what: &str| {
        Err(Error::new(Code::InvalidArgument, what)
            .next("give `value`, or `from` with `file`, or `from` with `context` and `variable`"))
    };
    match (&input.value, &input.from, &input.file, &input.context, &input.variable) {
        (Some(value), None, None, None, None) => Ok(Source::Value(value.clone())),
        (None, Some(from), Some(file), None, None) => Ok(Source::File(from.clone(), file.clone())),
        (None, Some(from), None, Some(context), Some(variable)) => {
            let mut letters = variable.chars();
            let begins = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
            let goes_on = letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
            if !begins || !goes_on || variable.len() > 128 {
                return refuse("variable is not the name of a variable");
            }
            Ok(Source::Variable(from.clone(), context.clone(), variable.clone()))
        }
        (Some(_), ..) => refuse("value is given, and another source too"),
        (None, None, ..) => refuse("nothing is given to hand over"),
        (None, Some(_), ..) => refuse("from needs either a file, or a context and a variable"),
    }
}

async fn fetch(inner: &Inner, context: &CallContext, source: Source) -> Result<Value> {
    match source {
        Source::Value(value) => Ok(value),
        Source::File(from, path) => {
            let sandbox = inner.sandboxes.looked_at(context, &from).await?;
            let (stat, mut bytes) =
                sandbox.agent()?.read_file(&path, GuestUser::Sandbox, 0, Some(CAP.0 + 1)).await?;
            let mut text = Vec::new();
            while let Some(part) = bytes.next().await {
                text.extend_from_slice(&part?);
            }
            if text.len() as u64 > CAP.0 {
                return Err(too_large(stat.size));
            }
            strict_json::parse(&text).map_err(|error| {
                let message = format!("{:?}: {}", path.as_str(), error.message);
                Error { message, ..error }
            })
        }
        Source::Variable(from, name, variable) => {
            let sandbox = inner.sandboxes.looked_at(context, &from).await?;
            let known = contexts(&sandbox).await?;
            let (_, language) =
                known.into_iter().find(|(known, _)| *known == name).ok_or_else(|| no_context(&name))?;
            let code = match language {
                CodeLanguage::Python => {
                    format!("__import__('sys').stdout.write(__import__('json').dumps({variable}))\nNone")
                }
                CodeLanguage::Node => {
                    format!("process.stdout.write(String(JSON.stringify({variable}))); undefined")
                }
                // Exists, whatever it holds.
                CodeLanguage::Shell => {
                    format!("[ -n \"${{{variable}+x}}\" ] && printf %s \"${variable}\"")
                }
            };
            let said = in_context(inner, context, &sandbox, &name, language, code, Vec::new()).await?;
            if said.stdout_truncated || said.stdout_bytes > CAP.0 {
                return Err(too_large(said.stdout_bytes));
            }
            if said.state != RunState::Completed {
                let why = said.error.map_or_else(|| "it is not set".to_owned(), |error| error.message);
                return Err(Error::new(
                    Code::InvalidArgument,
                    format!("{variable} in the context {name} cannot be written as JSON: {why}"),
                )
                .next("hand over what JSON can hold: numbers, texts, lists, objects"));
            }
            match (strict_json::parse(said.stdout.as_bytes()), language) {
                (Ok(value), _) => Ok(value),
                // What a shell has is text, and may be nothing else.
                (Err(_), CodeLanguage::Shell) => Ok(Value::String(said.stdout)),
                (Err(error), CodeLanguage::Python | CodeLanguage::Node) => {
                    let message = format!("{variable} in the context {name}: {}", error.message);
                    Err(Error { message, ..error })
                }
            }
        }
    }
}

/// Has a context read the file into `isle_data`.
async fn show_data(
    inner: &Inner,
    context: &CallContext,
    sandbox: &Arc<Sandbox>,
    one: &ContextName,
    language: CodeLanguage,
    name: &ContextName,
    path: &GuestPath,
) -> Result<()> {
    // Names have letters, digits, `.`, `_` and `-` only, so they need no quoting.
    let code = match language {
        CodeLanguage::Python => format!(
            "isle_data = globals().get('isle_data') if isinstance(globals().get('isle_data'), dict) else {{}}\n\
             isle_data['{name}'] = __import__('json').load(open(__import__('sys').argv[1], encoding='utf-8'))\n\
             None"
        ),
        CodeLanguage::Node => format!(
            "globalThis.isle_data = Object(globalThis.isle_data); \
             globalThis.isle_data['{name}'] = JSON.parse(require('fs').readFileSync(process.argv[1], 'utf8')); \
             undefined"
        ),
        CodeLanguage::Shell => {
            format!("declare -gA isle_data; isle_data['{name}']=$(<\"$1\")")
        }
    };
    let said = in_context(inner, context, sandbox, one, language, code, vec![path.absolute()]).await?;
    match said.state {
        RunState::Completed => Ok(()),
        _ => Err(Error::new(Code::Busy, format!("the context {one} did not take it"))
            .next("read the file instead")),
    }
}

async fn in_context(
    inner: &Inner,
    context: &CallContext,
    sandbox: &Arc<Sandbox>,
    name: &ContextName,
    language: CodeLanguage,
    code: String,
    args: Vec<String>,
) -> Result<RunResult> {
    let language = match language {
        CodeLanguage::Python => "python",
        CodeLanguage::Node => "node",
        CodeLanguage::Shell => "shell",
    };
    let program = Program::Code {
        language: Some(language.to_owned()),
        source: CodeSource::Text(code),
        args,
        restricted: false,
        context: Some(name.clone()),
    };
    let place = RunTarget::Incarnation { sandbox: Arc::clone(sandbox) };
    let plan = Plan {
        timeout: Some(PATIENCE.min(inner.config.max_timeout)),
        ..Plan::new(RunKind::RunCode, place, program)
    };
    let run = inner.runs.start(context, plan).await?;
    run.wait(context, PATIENCE.0 * 2, OnCancel::Kill).await?;
    if let Some(error) = run.finish().and_then(|finish| finish.error.clone()) {
        return Err(error);
    }
    let all = usize::try_from(CAP.0.saturating_mul(8)).unwrap_or(usize::MAX);
    Ok(inner.runs.snapshot_of(&run).result(all))
}

/// The contexts of the sandbox user, with their languages.
async fn contexts(sandbox: &Sandbox) -> Result<Vec<(ContextName, CodeLanguage)>> {
    let known = sandbox.agent()?.contexts().await?;
    let own = known.into_iter().filter(|entry| entry.user == GuestUser::Sandbox && entry.alive);
    Ok(own.filter_map(|entry| Some((entry.name.parse().ok()?, entry.language))).collect())
}

fn no_context(name: &ContextName) -> Error {
    Error::new(Code::ContextNotFound, format!("there is no context {name} in the sandbox"))
        .next("`list_contexts` shows those there are; run_code with `context` makes one")
}

fn too_large(size: u64) -> Error {
    Error::new(Code::TooLarge, format!("the data has {size} bytes, more than {CAP}"))
        .next("hand over less, or copy files with `isle cp`")
}
