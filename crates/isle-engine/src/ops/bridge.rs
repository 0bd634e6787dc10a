//! `bridge`: JSON from one sandbox, or from the caller, into another one, whatever languages they speak:
//! as a file, and as a variable of the contexts that are there.

use std::sync::Arc;

use futures::StreamExt;
use isle_fail::Point;
use isle_wire::{CodeLanguage, GuestUser};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Effect, Method, Operation, Route, Toolset};
use crate::agent::FileToWrite;
use crate::context::CallContext;
use crate::engine::{Engine, Inner};
use crate::error::{Code, Error, Result};
use crate::failpoint;
use crate::journal::Audit;
use crate::ops::shapes::{RunResult, RunState};
use crate::run::{
    CodeSource, Input as RunInput, OnCancel, Patience, Place, Plan, Program, RunKind, RunLimits,
};
use crate::sandbox::Sandbox;
use crate::strict_json;
use crate::values::{ByteSize, ContextName, GuestPath, SandboxName, Span};
use crate::vault::Wishes;

/// The most that is handed over at once, as JSON.
const CAP: ByteSize = ByteSize::mib(1);
/// How long a context may take to give or take something; it may be busy.
const PATIENCE: Span = Span::seconds(30);
/// Where data arrives, in the workspace.
const DIRECTORY: &str = "isle_data";

pub(super) struct Bridge;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// The sandbox that gets it.
    sandbox: SandboxName,
    /// What it is called there, default "data".
    name: Option<ContextName>,
    /// The data itself. Give this, or from.
    #[serde(default, deserialize_with = "given")]
    value: Option<Value>,
    /// The sandbox that has it, in a file or a variable.
    from: Option<SandboxName>,
    /// A file there that holds JSON.
    file: Option<GuestPath>,
    /// A variable there, in a context.
    variable: Option<String>,
    /// The context of the variable.
    context: Option<ContextName>,
    /// The only context that gets it as a variable; all of them when left out.
    to_context: Option<ContextName>,
}

/// A field that is there and `null` is a value.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    sandbox: SandboxName,
    name: ContextName,
    /// The file that holds it.
    path: String,
    /// Its size.
    bytes: usize,
    /// Contexts that have it as isle_data[name].
    contexts: Vec<String>,
    /// Contexts that could not take it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without: Vec<String>,
}

impl Operation for Bridge {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "bridge";
    const TITLE: &'static str = "Hand data over";
    const DESCRIPTION: &'static str = "Put JSON (a value, or a file or context variable of another sandbox) into a sandbox: as /workspace/isle_data/NAME.json, and as isle_data[NAME] in its contexts (Python, Node; JSON text in shell). At most 1 MiB.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/bridge" };
    const TOOLSET: Toolset = Toolset::Children;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let source = source(&input)?;
        let target = inner.looked_at(&context, &input.sandbox).await?;
        let value = inner.fetch(&context, source).await?;
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
            let taken = inner.show_data(&context, &target, one, *language, &name, &path).await;
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

impl Inner {
    async fn fetch(self: &Arc<Self>, context: &CallContext, source: Source) -> Result<Value> {
        match source {
            Source::Value(value) => Ok(value),
            Source::File(from, path) => {
                let sandbox = self.looked_at(context, &from).await?;
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
                let sandbox = self.looked_at(context, &from).await?;
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
                let said = self.in_context(context, &sandbox, &name, language, code, Vec::new()).await?;
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
        self: &Arc<Self>,
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
        let said = self.in_context(context, sandbox, one, language, code, vec![path.absolute()]).await?;
        match said.state {
            RunState::Completed => Ok(()),
            _ => Err(Error::new(Code::Busy, format!("the context {one} did not take it"))
                .next("read the file instead")),
        }
    }

    async fn in_context(
        self: &Arc<Self>,
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
        let plan = Plan {
            kind: RunKind::RunCode,
            job: None,
            lock: false,
            place: Place::Exactly { sandbox: Arc::clone(sandbox) },
            program: Program::Code {
                language: Some(language.to_owned()),
                source: CodeSource::Text(code),
                args,
                restricted: false,
                context: Some(name.clone()),
            },
            cwd: None,
            env: Vec::new(),
            user: GuestUser::Sandbox,
            timeout: Some(PATIENCE.min(self.config.max_timeout)),
            limits: RunLimits::default(),
            terminal: None,
            input: RunInput::Null,
            patience: Patience::GoOn,
            allow: Vec::new(),
            secrets: Wishes::default(),
        };
        let run = self.start_run(context, plan).await?;
        run.wait(context, PATIENCE.0 * 2, OnCancel::Kill).await?;
        if let Some(error) = run.finish().and_then(|finish| finish.error.clone()) {
            return Err(error);
        }
        let all = usize::try_from(CAP.0.saturating_mul(8)).unwrap_or(usize::MAX);
        Ok(self.snapshot_of(&run).result(all))
    }
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
