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
    let mut table = Table::new(&["NAME", "STATE", "TIER", "IMAGE", "RUNS", "CREATED", "LAST USED"]);
    for sandbox in fields::list(answer, "sandboxes") {
        table.row(
            ["name", "state", "tier", "image", "running_runs", "created_at", "last_used_at"]
                .map(|name| fields::text(sandbox, name)),
        );
    }
    if table.is_empty() {
        return "No sandboxes. `isle exec NAME -- COMMAND` makes one on first use.\n".to_owned();
    }
    table.render(Paint::for_stdout())
}
