//! `isle serve`: be the daemon.

use std::process::ExitCode;

use isle_client::Result;

use super::Context;
use crate::arguments::ServeArguments;
use crate::config::Settings;
use crate::daemon::{self, Ground};

pub(super) fn serve(context: &Context, arguments: ServeArguments) -> Result<ExitCode> {
    let flags =
        [("listen", arguments.listen), ("allow_remote", arguments.allow_remote.then(|| "true".to_owned()))];
    daemon::move_into_a_scope();
    let ground = if arguments.background { Ground::Back } else { Ground::Fore };
    let prepare = || Ok((context.places()?, Settings::for_daemon(context.global.config.as_ref(), &flags)?));
    daemon::serve(ground, context.form, prepare)
}
