//! `isle exec`: one command in a named sandbox.

use std::process::ExitCode;

use isle_client::{AttachTarget, Result};
use isle_engine::values::SandboxName;

use super::{Context, interactive};
use crate::arguments::ExecArguments;
use crate::config::Settings;

pub(super) async fn exec(context: &Context, arguments: ExecArguments) -> Result<ExitCode> {
    let ExecArguments { name, how, lock, allow_downgrade } = arguments;
    let name: SandboxName = name.parse()?;
    let flags =
        [("timeout", how.timeout.clone()), ("allow_downgrade", allow_downgrade.then(|| "true".to_owned()))];
    let settings = Settings::for_command(context.global.config.as_ref(), &flags)?;
    let mut request = interactive::request(AttachTarget::Sandbox(name.to_string()), how, &settings)?;
    request.lock = lock;
    interactive::open(context, &settings, request).await?.drive().await
}
