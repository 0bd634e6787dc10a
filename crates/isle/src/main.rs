//! The `isle` program: command line, daemon and MCP pipe.

mod arguments;
mod commands;
mod config;
mod daemon;
mod output;
mod places;
mod session;

fn main() -> std::process::ExitCode {
    commands::main()
}
