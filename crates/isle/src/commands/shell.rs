//! `isle shell`: a terminal in a named sandbox.

use std::io::IsTerminal;
use std::process::ExitCode;

use isle_client::{AttachTarget, Result};
use isle_engine::values::SandboxName;
use isle_engine::{Code, Error};

use super::{Context, interactive};
use crate::arguments::{CommandArguments, ShellArguments, Surroundings};
use crate::config::Settings;

/// The best shell the image has, as a login shell of the terminal.
const SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash -i; else exec sh -i; fi";

pub(super) async fn shell(context: &Context, arguments: ShellArguments) -> Result<ExitCode> {
    if !std::io::stdin().is_terminal() {
        return Err(Error::new(Code::InvalidArgument, "standard input is not a terminal")
            .next(format!("to run a script: `isle exec {} -- sh < script`", arguments.name))
            .into());
    }
    let name: SandboxName = arguments.name.parse()?;
    let flags = [("allow_downgrade", arguments.allow_downgrade.then(|| "true".to_owned()))];
    let settings = Settings::for_command(context.global.config.as_ref(), &flags)?;
    let how = CommandArguments {
        timeout: None,
        limit: Vec::new(),
        allow: Vec::new(),
        profile: None,
        secret: Vec::new(),
        expose_secret: Vec::new(),
        around: Surroundings {
            env: std::env::var("TERM").map(|term| format!("TERM={term}")).into_iter().collect(),
            cwd: arguments.cwd,
            user: arguments.user,
        },
        lang: None,
        tty: true,
        command: vec!["/bin/sh".into(), "-c".into(), SHELL.into()],
    };
    let mut request = interactive::request(AttachTarget::Sandbox(name.to_string()), how, &settings)?;
    // A shell is open as long as its user likes.
    request.timeout = None;
    interactive::open(context, &settings, request).await?.drive().await
}
