//! `isle exec`: runs a command in a named sandbox.

use std::process::ExitCode;

use isle_api::session::StartTarget;
use isle_client::Result;
use isle_core::values::SandboxName;

use super::{Context, interactive};
use crate::arguments::ExecArguments;
use crate::config::Settings;

pub(super) async fn exec(context: &Context, arguments: ExecArguments) -> Result<ExitCode> {
    let ExecArguments { name, how, lock, backend, allow_downgrade } = arguments;
    let name: SandboxName = name.parse()?;
    let flags = [
        ("timeout", how.timeout.clone()),
        ("backend", backend),
        ("allow_downgrade", allow_downgrade.then(|| "true".to_owned())),
    ];
    let settings = Settings::for_command(context.global.config.as_ref(), &flags)?;
    let mut request = interactive::request(StartTarget::Sandbox(name), how, &settings)?;
    request.lock = lock;
    interactive::open(context, &settings, request).await?.drive().await
}
