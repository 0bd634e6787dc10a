//! One file per command. Each gets a [`Context`] and gives the exit code of the program.

mod admin;
mod attach;
mod audit;
mod batch;
mod bridge;
mod call;
mod children;
mod code;
mod completions;
mod config;
mod contexts;
mod cp;
mod doctor;
mod each;
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
mod trees;
mod r#try;
mod validate;
mod wait;
mod watch;
mod webhooks;

use std::process::ExitCode;

use isle_client::{Client, Result};
use isle_engine::Error;

use crate::arguments::{Arguments, Command, Global};
use crate::config::Settings;
use crate::daemon;
use crate::output::{Form, show_error};
use crate::places::Places;
use crate::session::exit_code_of_error;

/// What every command needs to know.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) form: Form,
}

impl Context {
    pub(crate) fn places(&self) -> Result<Places> {
        Places::find(&self.global)
    }

    /// A client of the daemon, which is started when it does not run.
    pub(crate) async fn client(&self) -> Result<Client> {
        let settings = Settings::for_daemon(self.global.config.as_ref(), &[])?;
        daemon::connect(&self.places()?, &settings, self.global.config.as_ref()).await
    }

    /// The same for commands about namespaces, which are not given in one; and the namespace that was
    /// named to them.
    pub(crate) async fn operator_client(&self) -> Result<(Client, Option<String>)> {
        let settings = Settings::for_daemon(self.global.config.as_ref(), &[])?;
        let places = self.places()?;
        let namespace = places.namespace.clone().or_else(|| settings.text("namespace"));
        let endpoint = daemon::endpoint(&places, &settings)?.within(None);
        let user_file = self.global.config.as_ref();
        let client = daemon::reach(&places, &endpoint, user_file, async |endpoint| {
            Client::connect(endpoint.clone()).await
        });
        Ok((client.await?, namespace))
    }
}

/// Reads the command line and does what it says.
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

/// Runs a command on one thread: starting more would cost more than most commands do.
pub(crate) fn block_on(command: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::internal)?;
    let ended = runtime.block_on(command);
    // A thread may still wait for a key or a slow reader; nobody waits for it.
    runtime.shutdown_background();
    ended
}
