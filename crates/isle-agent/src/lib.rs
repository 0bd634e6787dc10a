//! The program that becomes the first process of every sandbox. The native backend starts it once per daemon
//! as a fork server; each sandbox is a clone of that process, set up and then serving as its agent. It can
//! also be started as an ordinary child process (`isle-agent plain`). Under the name `isle-ctl` it is the
//! client of the control socket.
//!
//! Where to look: [`command_line`] parses how it was started, `fork_server` makes sandboxes, `mode` says
//! what differs between them, `link` connects to hosts, `serve` dispatches requests, `run` and `spawn` run
//! commands, `processes` finds and kills them.

mod async_fd;
mod close_fds;
mod code;
mod command_line;
mod control_socket;
mod ctl;
mod deleted_files;
mod disk_full;
mod exceeded;
mod files;
mod fork_server;
pub mod fuzzing;
mod guest_paths;
mod guest_stream;
mod helper_process;
mod limits_watcher;
mod link;
mod mode;
mod network;
mod oom_score;
mod output;
mod pause;
mod plain;
mod process_title;
mod processes;
mod reap;
mod resource_usage;
mod run;
mod seccomp_notify;
mod serve;
mod spawn;
mod stdin;
mod steps;
mod task_counter;
mod unrouted;
mod usage;
mod userns_owner;

use std::ffi::OsString;
use std::process::ExitCode;

use command_line::Command;

/// Runs the program with these arguments, the first of which is its name.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let name = arguments.next().unwrap_or_default();
    if std::path::Path::new(&name).file_name() == Some(ctl::NAME.as_ref()) {
        return ctl::main(arguments);
    }
    let outcome = match command_line::parse(arguments) {
        Ok(Command::ForkServer(options)) => fork_server::run(&options).map_err(|error| error.to_string()),
        Ok(Command::Plain(options)) => plain::run(options).map_err(|error| error.to_string()),
        Ok(Command::DeletedFiles(pids)) => return deleted_files::main(pids),
        Err(problem) => {
            eprintln!("isle-agent: {problem}\n\n{}", command_line::USAGE);
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("isle-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
