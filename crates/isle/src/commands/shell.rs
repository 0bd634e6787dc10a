//! `isle shell`: opens a shell in a named sandbox.

use std::io::IsTerminal;
use std::process::ExitCode;

use isle_api::session::StartTarget;
use isle_client::Result;
use isle_core::values::SandboxName;
use isle_core::{Code, Error};

use super::{Context, interactive};
use crate::arguments::{CommandArguments, ProcessArguments, ShellArguments};
use crate::config::Settings;

/// Starts bash if the image has it, else sh.
const SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash -i; else exec sh -i; fi";

pub(super) async fn shell(context: &Context, arguments: ShellArguments) -> Result<ExitCode> {
    if !std::io::stdin().is_terminal() {
        return Err(Error::new(Code::InvalidArgument, "standard input is not a terminal")
            .next(format!("to run a script, use `isle exec {} -- sh < script`", arguments.name))
            .into());
    }
    let name: SandboxName = arguments.name.parse()?;
    let flags = [
        ("backend", arguments.backend),
        ("allow_downgrade", arguments.allow_downgrade.then(|| "true".to_owned())),
    ];
    let settings = Settings::for_command(context.global.config.as_ref(), &flags)?;
    let how = CommandArguments {
        timeout: None,
        limit: Vec::new(),
        allow: Vec::new(),
        profile: None,
        secret: Vec::new(),
        expose_secret: Vec::new(),
        process: ProcessArguments {
            env: std::env::var("TERM").map(|term| format!("TERM={term}")).into_iter().collect(),
            cwd: arguments.cwd,
            user: arguments.user,
        },
        lang: None,
        tty: true,
        command: vec!["/bin/sh".into(), "-c".into(), SHELL.into()],
    };
    let mut request = interactive::request(StartTarget::Sandbox(name), how, &settings)?;
    // A shell has no timeout.
    request.timeout = None;
    interactive::open(context, &settings, request).await?.drive().await
}
