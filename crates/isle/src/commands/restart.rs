//! `isle restart`: a daemon of this version in place of whatever runs.

use std::process::ExitCode;

use isle_client::{Client, Endpoint, Result};
use serde_json::json;

use super::{Context, stop};
use crate::daemon;
use crate::output::show;

pub(super) async fn restart(context: &Context) -> Result<ExitCode> {
    let before = stop::stop_if_running(context).await?;
    let places = context.places()?;
    daemon::start(&places, context.global.config.as_deref())?;
    let now = Client::connect(Endpoint::unix(places.socket)).await?.version().await?;
    show(context.form, &json!({ "stopped": before, "started": now }), |_| {
        format!("The daemon runs: version {}, pid {}.\n", now.version, now.pid)
    })
}
