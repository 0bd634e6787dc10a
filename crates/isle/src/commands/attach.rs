//! `isle attach`: looks at a run that goes on, and types into it. Leaving does not end it.

use std::process::ExitCode;

use isle_client::{AttachEvent, Result, ViewRequest};

use super::Context;
use crate::arguments::AttachArguments;
use crate::config::Settings;
use crate::daemon;
use crate::output::{Form, say};
use crate::session::{Mode, Role, Session, window};

pub(super) async fn attach(context: &Context, arguments: AttachArguments) -> Result<ExitCode> {
    let settings = Settings::for_command(context.global.config.as_ref(), &[])?;
    let places = context.places()?;
    let endpoint = daemon::endpoint(&places, &settings)?;
    let user_file = context.global.config.as_ref();
    let request = ViewRequest { view: arguments.job.clone(), terminal: window() };
    let (writer, mut reader) =
        daemon::reach(&places, &endpoint, user_file, async |endpoint| request.open(endpoint).await).await?;
    let AttachEvent::Started { run_id, terminal } = reader.next().await? else {
        return Err(isle_engine::Error::internal("the daemon showed output before it said of what").into());
    };
    if context.form == Form::Human {
        let leave = if terminal { "Ctrl-P Ctrl-Q leaves" } else { "Ctrl-C leaves" };
        say(&format!("isle: attached to {} ({run_id}); {leave}, and it goes on", arguments.job));
    }
    let mode = if terminal { Mode::Terminal } else { Mode::Pipes };
    let role = Role::Viewer { job: arguments.job };
    Session { writer, reader, mode, form: context.form, stdin: true, role }.drive().await
}
