//! The program that becomes the first process of every sandbox. It is started once per daemon as
//! the fork server; each sandbox is a clone of that one, set up and then serving as its agent. Under
//! another name it is the small client of the control socket.

mod census;
mod code;
mod control;
mod ctl;
mod entrance;
mod exceeded;
mod family;
mod files;
mod fork_server;
mod kill_order;
mod name;
mod network;
mod output;
mod owner;
mod pause;
mod place;
mod plain_server;
mod ration;
mod reap;
mod refusals;
mod room;
mod routes;
mod run;
mod runs;
mod serve;
mod spawn;
mod spent;
mod steps;
mod supervise;
mod tree;
mod watched;

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    if std::path::Path::new(&name).file_name() == Some(ctl::NAME.as_ref()) {
        return ctl::main(arguments);
    }
    let mode = arguments.next();
    if mode.as_deref() != Some(std::ffi::OsStr::new("fork-server")) {
        eprintln!("isle-agent is started by isle; there is nothing to run by hand");
        return std::process::ExitCode::from(2);
    }
    match fork_server::run(arguments) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("isle-agent: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
