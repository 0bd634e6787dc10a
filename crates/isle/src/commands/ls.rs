//! `isle ls`: the sandboxes there are.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::{Context, fields};
use crate::output::{Paint, Table, show};

pub(super) async fn ls(context: &Context) -> Result<ExitCode> {
    let answer = context.client().await?.call("list", json!({})).await?;
    show(context.form, &answer, sandbox_table)
}

/// The `sandboxes` of an answer.
pub(super) fn sandbox_table(answer: &Value) -> String {
    let mut table =
        Table::new(&["NAME", "STATE", "TIER", "IMAGE", "RUNNING", "CREATED", "LAST USED", "EXPIRES"]);
    for sandbox in fields::list(answer, "sandboxes") {
        let [name, state, tier, image, runs, created, used] =
            ["name", "state", "tier", "image", "running_runs", "created_at", "last_used_at"]
                .map(|name| fields::text(sandbox, name));
        // Both have the same form, so the earlier one is the smaller one.
        let expires =
            ["expires_at", "idle_expires_at"].iter().filter_map(|name| sandbox[*name].as_str()).min();
        table.row([name, state, tier, image, runs, created, used, expires.unwrap_or("-").to_owned()]);
    }
    if table.is_empty() {
        return "No sandboxes. `isle exec NAME -- COMMAND` makes one on first use.\n".to_owned();
    }
    table.render(Paint::for_stdout())
}
