//! The attack program. Everything is in the library, which the host uses, too.

use std::process::ExitCode;

fn main() -> ExitCode {
    isle_probe::main()
}
