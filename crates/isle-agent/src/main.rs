//! The agent's program: see the library.

fn main() -> std::process::ExitCode {
    isle_agent::run(std::env::args_os())
}
