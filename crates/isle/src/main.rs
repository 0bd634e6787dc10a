//! The `isle` program: command line, daemon and MCP stdio bridge.

mod arguments;
mod backends;
mod commands;
mod config;
mod daemon;
mod output;
mod paths;
mod session;

fn main() -> std::process::ExitCode {
    let mut words = std::env::args_os().skip(1);
    // Answered before the parser of the command line is built, which takes longer than everything else here.
    if let (Some(word), None) = (words.next(), words.next())
        && (word == "--version" || word == "-V")
    {
        return output::print_version();
    }
    commands::main()
}
