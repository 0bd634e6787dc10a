//! The attack program. Everything is in the library, which the host's side uses too.

use std::process::ExitCode;

fn main() -> ExitCode {
    isle_probe::main()
}
