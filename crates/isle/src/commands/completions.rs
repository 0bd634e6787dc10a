//! `isle completions`.

use std::process::ExitCode;

use clap::CommandFactory;
use isle_client::Result;

use crate::arguments::{Arguments, CompletionsArguments};
use crate::output::print;

pub(super) fn completions(arguments: CompletionsArguments) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "isle", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}
