//! `isle serve`: runs the daemon.

use std::process::ExitCode;

use isle_client::Result;

use super::Context;
use crate::arguments::ServeArguments;
use crate::config::Settings;
use crate::daemon::{self, ServeMode};

pub(super) fn serve(context: &Context, arguments: ServeArguments) -> Result<ExitCode> {
    let flags =
        [("listen", arguments.listen), ("allow_remote", arguments.allow_remote.then(|| "true".to_owned()))];
    daemon::move_into_systemd_scope();
    let mode = if arguments.background { ServeMode::Background } else { ServeMode::Foreground };
    let prepare = || Ok((context.paths()?, Settings::for_daemon(context.global.config.as_ref(), &flags)?));
    daemon::serve(mode, context.form, prepare)
}
