//! `isle repair`: sets a damaged database aside, so that a daemon can start, and tells what lives.

use std::process::ExitCode;

use isle_client::Result;
use isle_engine::Error;
use isle_store::Store;
use serde_json::{Value, json};

use super::Context;
use crate::daemon::store_error;
use crate::output::show;

pub(super) async fn repair(context: &Context) -> Result<ExitCode> {
    let places = context.places()?;
    let actor = format!("uid:{}", rustix::process::getuid().as_raw());
    let dir = places.state_dir.clone();
    // It reads the whole database, and waits for the disk.
    let set_aside = tokio::task::spawn_blocking(move || Store::quarantine(&dir, &actor, "cli"))
        .await
        .map_err(Error::internal)?
        .map_err(|error| store_error(&places, error))?;
    let Some(set_aside) = set_aside else {
        return show(context.form, &json!({ "damaged": false }), |_| {
            "Nothing is wrong with the database.\n".to_owned()
        });
    };
    // A daemon takes over whatever lives without a record; this one, or the next that is started.
    let listed = match context.client().await {
        Ok(client) => client.call("list", json!({})).await?["sandboxes"].clone(),
        Err(error) if error.is_absent() => Value::Null,
        Err(error) => return Err(error),
    };
    let answer = json!({
        "damaged": true, "reason": set_aside.reason, "quarantine": set_aside.place,
        "files": set_aside.files, "sandboxes": listed,
    });
    show(context.form, &answer, words)
}

fn words(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: Vec<String> =
        answer["sandboxes"].as_array().into_iter().flatten().map(|one| text(&one["name"])).collect();
    let lives = match names.as_slice() {
        [] if answer["sandboxes"].is_null() => {
            "The next daemon takes over the sandboxes that live.".to_owned()
        }
        [] => "No sandbox was alive.".to_owned(),
        names => format!("Taken over, with what runs in them: {}.", names.join(", ")),
    };
    format!(
        "The database could not be used: {}.\nIt is now in {}; nothing was deleted.\n{lives} All workspaces are kept.\n\
         History and audit rows begin anew. To go back, put a good copy of it and its audit.key in place of the new ones while no daemon runs.\n",
        text(&answer["reason"]),
        text(&answer["quarantine"]),
    )
}
