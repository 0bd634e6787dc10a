//! `isle repair`: moves a corrupt database aside, so that a daemon can start, and lists the sandboxes it adopted.

use std::process::ExitCode;

use isle_client::Result;
use isle_core::Error;
use isle_store::Store;
use serde_json::{Value, json};

use super::Context;
use crate::daemon::store_error;
use crate::output::show;

pub(super) async fn repair(context: &Context) -> Result<ExitCode> {
    let paths = context.paths()?;
    let actor = format!("uid:{}", rustix::process::getuid().as_raw());
    let dir = paths.state_dir.clone();
    // Blocking: reads the whole database.
    let set_aside = tokio::task::spawn_blocking(move || Store::quarantine(&dir, &actor, "cli"))
        .await
        .map_err(Error::internal)?
        .map_err(|error| store_error(&paths, error))?;
    let Some(set_aside) = set_aside else {
        return show(context.form, &json!({ "damaged": false }), |_| "The database is intact.\n".to_owned());
    };
    // The running daemon, or the next one started, adopts running sandboxes that have no record.
    let listed = match context.client().await {
        Ok(client) => client.call("list", json!({})).await?["sandboxes"].clone(),
        Err(error) if error.is_absent() => Value::Null,
        Err(error) => return Err(error),
    };
    let answer = json!({
        "damaged": true, "reason": set_aside.reason, "quarantine": set_aside.place,
        "files": set_aside.files, "sandboxes": listed,
    });
    show(context.form, &answer, summary)
}

fn summary(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: Vec<String> =
        answer["sandboxes"].as_array().into_iter().flatten().map(|one| text(&one["name"])).collect();
    let adopted = match names.as_slice() {
        [] if answer["sandboxes"].is_null() => "The next daemon adopts running sandboxes.".to_owned(),
        [] => "No sandbox was running.".to_owned(),
        names => format!("Adopted running sandboxes: {}.", names.join(", ")),
    };
    format!(
        "The database is corrupt: {}.\nIt was moved to {}; nothing was deleted.\n{adopted} All workspaces are kept.\n\
         History and audit log start empty. To revert, stop the daemon and replace the new database and audit.key by a good copy.\n",
        text(&answer["reason"]),
        text(&answer["quarantine"]),
    )
}
