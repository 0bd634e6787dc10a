//! `isle attach`: attaches to a running job. Detaching does not stop it.

use std::process::ExitCode;

use isle_api::session::{AttachRequest, FirstMessage};
use isle_client::{Result, SessionEvent, open_session};

use super::Context;
use crate::arguments::AttachArguments;
use crate::config::Settings;
use crate::daemon;
use crate::output::{Form, print_stderr};
use crate::session::{Mode, Role, Session, window};

pub(super) async fn attach(context: &Context, arguments: AttachArguments) -> Result<ExitCode> {
    let settings = Settings::for_command(context.global.config.as_ref(), &[])?;
    let paths = context.paths()?;
    let endpoint = daemon::endpoint(&paths, &settings)?;
    let user_file = context.global.config.as_ref();
    let request = AttachRequest { run: arguments.job.parse()?, terminal: window() };
    let first = FirstMessage::Attach(request);
    let (writer, mut reader) =
        daemon::reach(&paths, &endpoint, user_file, async |endpoint| open_session(endpoint, &first).await)
            .await?;
    let SessionEvent::Started { run_id, terminal } = reader.next().await? else {
        return Err(isle_core::Error::internal("the daemon sent output before the start message").into());
    };
    if context.form == Form::Human {
        let keys = if terminal { "Ctrl-P Ctrl-Q" } else { "Ctrl-C" };
        print_stderr(&format!(
            "isle: attached to {} ({run_id}); {keys} detaches and keeps it running",
            arguments.job
        ));
    }
    let mode = if terminal { Mode::Terminal } else { Mode::Pipes };
    let role = Role::Viewer { job: arguments.job };
    Session { writer, reader, mode, form: context.form, stdin: true, role }.drive().await
}
