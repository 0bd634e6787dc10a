//! `run_commands`: several commands in one run, in order. The first failure ends the run unless it is
//! allowed.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::run::{
    AnswerOptions, Plan, PlannedCommand, Program, RunKind, SimpleCommand, directory, named_target, program,
};
use isle_api::ops::run_commands::{Input, OneCommand, RunCommands};
use isle_api::shapes::RunResult;
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};

/// Commands in one run.
const MOST: usize = 100;

fn planned(command: OneCommand) -> Result<PlannedCommand> {
    let program = match program(command.command, command.argv)? {
        Program::Shell(text) => SimpleCommand::Shell(text),
        Program::Argv(argv) => SimpleCommand::Argv(argv),
        Program::Code { .. } | Program::Commands { .. } | Program::Tool { .. } => {
            return Err(Error::internal("a command is neither text nor words"));
        }
    };
    Ok(PlannedCommand {
        program,
        cwd: command.cwd.as_deref().map(GuestPath::parse_absolute).transpose()?,
        env: command.env.unwrap_or_default().0,
        allow_failure: command.allow_failure.unwrap_or(false),
    })
}

impl Handler for RunCommands {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<RunResult> {
        if input.commands.is_empty() || input.commands.len() > MOST {
            let message = format!("there are {} commands", input.commands.len());
            return Err(Error::new(Code::InvalidArgument, message).next(format!("give 1 to {MOST}")));
        }
        let commands = (1..)
            .zip(input.commands)
            .map(|(number, command)| {
                planned(command).map_err(|error| {
                    let message = format!("command {number}: {}", error.message);
                    Error { message, ..error }
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let place = named_target(input.sandbox);
        let program =
            Program::Commands { commands, continue_on_error: input.continue_on_error.unwrap_or(false) };
        let plan = Plan {
            cwd: directory(input.cwd.as_deref())?,
            env: input.env.unwrap_or_default().0,
            user: input.user.unwrap_or_default().into(),
            timeout: engine.inner.runs.timeout(input.timeout),
            limits: input.limits.unwrap_or_default(),
            lock: input.lock.unwrap_or(false),
            ..Plan::new(RunKind::Commands, place, program)
        };
        let options = AnswerOptions { wait: input.wait, output_limit: input.output_limit };
        engine.inner.runs.answer(&context, plan, options).await
    }
}
