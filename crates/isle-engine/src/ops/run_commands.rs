//! `run_commands`: several commands in one run, in order. The first failure ends the run unless it is
//! allowed.

use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::{Environment, RunArguments, User, argv, named_place, program};
use super::shapes::RunResult;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::run::{PlannedCommand, Program, RunKind, RunLimits, Simple};
use crate::values::{ByteSize, GuestPath, SandboxName, Span};
use crate::vault::Wishes;

/// Commands in one run.
const MOST: usize = 100;

pub(super) struct RunCommands;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    /// In order; each in a fresh shell.
    commands: Vec<OneCommand>,
    /// Go on after a failure; the run still counts as failed.
    continue_on_error: Option<bool>,
    cwd: Option<String>,
    env: Option<Environment>,
    user: Option<User>,
    /// For all of them together.
    timeout: Option<Span>,
    limits: Option<RunLimits>,
    /// Run alone among runs with lock, in order.
    lock: Option<bool>,
    /// Answer after this at the latest; the run goes on.
    wait: Option<Span>,
    output_limit: Option<ByteSize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct OneCommand {
    command: Option<String>,
    #[serde(default, deserialize_with = "argv")]
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    env: Option<Environment>,
    /// A failure of this one does not count.
    allow_failure: Option<bool>,
}

impl OneCommand {
    fn planned(self) -> Result<PlannedCommand> {
        let program = match program(self.command, self.argv)? {
            Program::Shell(text) => Simple::Shell(text),
            Program::Argv(argv) => Simple::Argv(argv),
            Program::Code { .. } | Program::Commands { .. } | Program::Tool { .. } => {
                return Err(Error::internal("a command is neither text nor words"));
            }
        };
        Ok(PlannedCommand {
            program,
            cwd: self.cwd.as_deref().map(GuestPath::parse_absolute).transpose()?,
            env: self.env.unwrap_or_default().0,
            allow_failure: self.allow_failure.unwrap_or(false),
        })
    }
}

impl Operation for RunCommands {
    type Input = Input;
    type Output = RunResult;
    const NAME: &'static str = "run_commands";
    const TITLE: &'static str = "Run several commands";
    const DESCRIPTION: &'static str = "Run several commands in order, as one run. The first failure ends it, unless allow_failure or continue_on_error; the result tells of each. Other arguments as in exec.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/commands" };
    const TOOLSET: Toolset = Toolset::Jobs;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<RunResult> {
        if input.commands.is_empty() || input.commands.len() > MOST {
            let message = format!("there are {} commands", input.commands.len());
            return Err(Error::new(Code::InvalidArgument, message).next(format!("give 1 to {MOST}")));
        }
        let commands = (1..)
            .zip(input.commands)
            .map(|(number, command)| {
                command.planned().map_err(|error| {
                    let message = format!("command {number}: {}", error.message);
                    Error { message, ..error }
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let arguments = RunArguments {
            kind: RunKind::Commands,
            place: named_place(input.sandbox),
            program: Program::Commands {
                commands,
                continue_on_error: input.continue_on_error.unwrap_or(false),
            },
            cwd: input.cwd,
            env: input.env,
            stdin: None,
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
