//! One file per command. Each takes a [`Context`] and returns the exit code of the program.

mod admin;
mod attach;
mod audit;
mod batch;
mod bridge;
mod call;
mod call_each;
mod children;
mod code;
mod completions;
mod config;
mod contexts;
mod cp;
mod doctor;
mod env;
mod events;
mod exec;
mod fields;
mod file;
mod grants;
mod history;
mod install;
mod interactive;
mod job;
mod kill;
mod lifecycle;
mod logs;
mod ls;
mod mcp;
mod network;
mod repair;
mod reset;
mod restart;
mod rm;
mod run;
mod secret;
mod serve;
mod shell;
mod spawn;
mod status;
mod stop;
mod sync;
mod token;
mod top;
pub(crate) mod transfer_report;
mod trees;
mod r#try;
mod validate;
mod wait;
mod watch;
mod webhooks;

use std::pin::Pin;
use std::process::ExitCode;

use isle_client::{Client, Result};
use isle_core::Error;

use crate::arguments::{Arguments, Command, Global};
use crate::config::Settings;
use crate::daemon;
use crate::output::{Form, show_error};
use crate::paths::Paths;
use crate::session::exit_code_of_error;

/// Global options of the command line.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) form: Form,
}

impl Context {
    pub(crate) fn paths(&self) -> Result<Paths> {
        Paths::find(&self.global)
    }

    /// A client of the daemon, which is started if it is not running.
    pub(crate) async fn client(&self) -> Result<Client> {
        let settings = Settings::for_daemon(self.global.config.as_ref(), &[])?;
        let paths = self.paths()?;
        let endpoint = daemon::endpoint(&paths, &settings)?;
        daemon::connect(&paths, endpoint, self.global.config.as_ref()).await
    }

    /// The same for commands about namespaces, which do not run inside one; also returns the namespace given.
    pub(crate) async fn operator_client(&self) -> Result<(Client, Option<String>)> {
        let settings = Settings::for_daemon(self.global.config.as_ref(), &[])?;
        let paths = self.paths()?;
        let namespace = paths.namespace.clone().or_else(|| settings.text("namespace"));
        let endpoint = daemon::endpoint(&paths, &settings)?.within(None);
        let client = daemon::connect(&paths, endpoint, self.global.config.as_ref()).await?;
        Ok((client, namespace))
    }
}

/// Parses the command line and runs the command.
pub(crate) fn main() -> ExitCode {
    let Arguments { global, command } = Arguments::read();
    let form = if global.json { Form::Json } else { Form::Human };
    let context = Context { global, form };
    let runs_a_command = matches!(
        command,
        Command::Run(_) | Command::Exec(_) | Command::Code(_) | Command::Shell(_) | Command::Batch(_)
    );
    match dispatch(&context, command) {
        Ok(code) => code,
        Err(error) => {
            show_error(&error, form);
            if runs_a_command { exit_code_of_error(&error) } else { ExitCode::FAILURE }
        }
    }
}

fn dispatch(context: &Context, command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(arguments) => block_on(run::run(context, arguments)),
        Command::Exec(arguments) => block_on(exec::exec(context, arguments)),
        Command::Shell(arguments) => block_on(shell::shell(context, arguments)),
        Command::Code(arguments) => block_on(code::code(context, arguments)),
        Command::Contexts(arguments) => block_on(contexts::contexts(context, arguments)),
        Command::Allow(arguments) => block_on(network::allow(context, arguments)),
        Command::Revoke(arguments) => block_on(network::revoke(context, arguments)),
        Command::Grants(arguments) => block_on(grants::grants(context, arguments)),
        Command::Net(arguments) => block_on(network::net(context, arguments)),
        Command::Expose(arguments) => block_on(network::expose(context, arguments)),
        Command::Unexpose(arguments) => block_on(network::unexpose(context, arguments)),
        Command::Url(arguments) => block_on(network::url(context, arguments)),
        Command::Env(arguments) => block_on(env::env(context, arguments)),
        Command::Validate(arguments) => block_on(validate::validate(context, arguments)),
        Command::Install(arguments) => block_on(install::install(context, arguments)),
        Command::Create(arguments) => block_on(lifecycle::create(context, arguments)),
        Command::Extend(arguments) => block_on(lifecycle::extend(context, arguments)),
        Command::Pause(arguments) => block_on(lifecycle::pause(context, arguments, "pause")),
        Command::Resume(arguments) => block_on(lifecycle::pause(context, arguments, "resume")),
        Command::Reset(arguments) => block_on(reset::reset(context, arguments)),
        Command::Batch(arguments) => block_on(batch::batch(context, arguments)),
        Command::Job(arguments) => block_on(job::job(context, arguments)),
        Command::Attach(arguments) => block_on(attach::attach(context, arguments)),
        Command::Spawn(arguments) => block_on(spawn::spawn(context, arguments)),
        Command::Bridge(arguments) => block_on(bridge::bridge(context, arguments)),
        Command::Children(arguments) => block_on(children::children(context, arguments)),
        Command::Secret(arguments) => block_on(secret::secret(context, arguments)),
        Command::Ls => block_on(ls::ls(context)),
        Command::Status(arguments) => block_on(status::status(context, arguments)),
        Command::Rm(arguments) => block_on(rm::rm(context, arguments)),
        Command::Cp(arguments) => block_on(cp::cp(context, arguments)),
        Command::File(arguments) => block_on(file::file(context, arguments)),
        Command::Sync(arguments) => block_on(sync::sync(context, arguments)),
        Command::Watch(arguments) => block_on(watch::watch(context, arguments)),
        Command::Logs(arguments) => block_on(logs::logs(context, arguments)),
        Command::Wait(arguments) => block_on(wait::wait(context, arguments)),
        Command::Kill(arguments) => block_on(kill::kill(context, arguments)),
        Command::Usage(arguments) => block_on(admin::usage(context, arguments)),
        Command::Inspect(arguments) => block_on(admin::inspect(context, arguments)),
        Command::Limits(arguments) => block_on(admin::limits(context, arguments)),
        Command::Token(arguments) => block_on(token::token(context, arguments)),
        Command::History(arguments) => block_on(history::history(context, arguments)),
        Command::Top(arguments) => block_on(top::top(context, arguments)),
        Command::Events(arguments) => block_on(events::events(context, arguments)),
        Command::Webhooks(arguments) => block_on(webhooks::webhooks(context, arguments)),
        Command::Audit(arguments) => block_on(audit::audit(context, arguments)),
        Command::Serve(arguments) => serve::serve(context, arguments),
        Command::Stop => block_on(stop::stop(context)),
        Command::Restart => block_on(restart::restart(context)),
        Command::Repair => block_on(repair::repair(context)),
        Command::Mcp(arguments) => mcp::mcp(context, &arguments),
        Command::Call(arguments) => call::call(context, arguments),
        Command::Doctor(arguments) => doctor::doctor(context, arguments),
        Command::Try => block_on(r#try::walk(context)),
        Command::Config(arguments) => config::config(context, arguments),
        Command::Completions(arguments) => completions::completions(arguments),
    }
}

/// Runs a command on one thread: starting more would take longer than most commands.
pub(crate) fn block_on(command: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::internal)?;
    // Boxed, so that the runtime is compiled once and not once for each command.
    let command: Pin<Box<dyn Future<Output = _>>> = Box::pin(command);
    let result = runtime.block_on(command);
    // Do not wait for threads that block on input or a slow reader.
    runtime.shutdown_background();
    result
}
