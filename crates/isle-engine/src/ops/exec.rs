//! `exec`: a command in a named sandbox.

use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::{Environment, RunArguments, User, argv, program, sandbox_or_default};
use super::shapes::RunResult;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::run::{Asked, Place, RunKind, RunLimits};
use crate::sandbox::Settings;
use crate::values::{ByteSize, SandboxName, Span, Term};
use crate::vault::Wishes;

pub(super) struct Exec;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Default "default"; made on first use.
    sandbox: Option<SandboxName>,
    /// Shell text. Give this or argv.
    command: Option<String>,
    /// Without a shell.
    #[serde(default, deserialize_with = "argv")]
    argv: Option<Vec<String>>,
    /// Absolute; default /workspace.
    cwd: Option<String>,
    /// Extra variables.
    env: Option<Environment>,
    /// For standard input.
    stdin: Option<String>,
    user: Option<User>,
    /// Ends it all after, e.g. "30s".
    timeout: Option<Span>,
    /// Of each process.
    limits: Option<RunLimits>,
    /// One at a time, in order.
    lock: Option<bool>,
    /// Answer after this; the run goes on.
    wait: Option<Span>,
    /// E.g. "8K" of output in the answer.
    output_limit: Option<ByteSize>,
    /// Of a new sandbox.
    ttl: Option<Term>,
    idle: Option<Term>,
    resume: Option<bool>,
    profile: Option<String>,
    /// E.g. "KEY" or "KEY=VARIABLE".
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    expose_secrets: Vec<String>,
}

impl Operation for Exec {
    type Input = Input;
    type Output = RunResult;
    const NAME: &'static str = "exec";
    const TITLE: &'static str = "Run a command";
    const DESCRIPTION: &'static str = "Run a command in an isolated Linux sandbox. Files in /workspace and installed packages stay; every call is a fresh shell. Network only where granted. A long run answers state=running: use wait, logs, kill.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/exec" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<RunResult> {
        let arguments = RunArguments {
            kind: RunKind::Exec,
            place: Place::Named {
                name: sandbox_or_default(input.sandbox),
                asked: Asked {
                    settings: Settings {
                        ttl: input.ttl,
                        idle: input.idle,
                        profile: input.profile,
                        ..Settings::default()
                    },
                    resume: input.resume.unwrap_or(false),
                },
            },
            program: program(input.command, input.argv)?,
            cwd: input.cwd,
            env: input.env,
            stdin: input.stdin,
            user: input.user,
            timeout: input.timeout,
            limits: input.limits,
            lock: input.lock,
            allow: Vec::new(),
            secrets: Wishes::parse(&input.secrets, &input.expose_secrets)?,
            wait: input.wait,
            output_limit: input.output_limit,
        };
        arguments.call(&engine.inner, &context).await
    }
}
