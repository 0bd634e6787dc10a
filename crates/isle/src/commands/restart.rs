//! `isle restart`: stops the running daemon, if any, and starts one of this version.

use std::process::ExitCode;

use isle_client::{Client, ClientError, DaemonVersion, Endpoint, Result};
use serde_json::json;

use super::{Context, stop};
use crate::daemon::{self, Missing};
use crate::output::show;
use crate::paths::{DaemonAddress, Paths};

pub(super) async fn restart(context: &Context) -> Result<ExitCode> {
    let before = stop::stop_if_running(context).await?;
    let paths = context.paths()?;
    let mut now = started(context, &paths).await;
    for _ in 0..daemon::MAX_RETRIES {
        // Others may restart or kill it meanwhile.
        if !now.as_ref().is_err_and(ClientError::is_absent) {
            break;
        }
        now = started(context, &paths).await;
    }
    let now = now?;
    show(context.form, &json!({ "stopped": before, "started": now }), |_| {
        format!("Daemon started: version {}, pid {}.\n", now.version, now.pid)
    })
}

async fn started(context: &Context, paths: &Paths) -> Result<DaemonVersion> {
    let found = daemon::find_or_start(paths, context.global.config.as_deref(), Missing::Start)?;
    let DaemonAddress { socket, instance } = found.unwrap_or_else(|| paths.daemon_address());
    Client::connect(Endpoint::unix(socket).serving(instance)).await?.version().await
}
