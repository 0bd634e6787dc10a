//! `isle ls`: lists sandboxes.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::{Context, fields};
use crate::output::{Paint, Table, show};

pub(super) async fn ls(context: &Context) -> Result<ExitCode> {
    let answer = context.client().await?.call("list", json!({})).await?;
    show(context.form, &answer, sandbox_table)
}

/// Table of the `sandboxes` of a result.
pub(super) fn sandbox_table(answer: &Value) -> String {
    let mut table = Table::new(&[
        "NAME",
        "STATE",
        "BACKEND",
        "TIER",
        "IMAGE",
        "RUNNING",
        "CREATED",
        "LAST USED",
        "EXPIRES",
    ]);
    for sandbox in fields::list(answer, "sandboxes") {
        let [name, state, backend, tier, image, runs, created, used] =
            ["name", "state", "backend", "tier", "image", "running_runs", "created_at", "last_used_at"]
                .map(|name| fields::text(sandbox, name));
        // Both have the same format, so the earlier one compares as smaller.
        let expires =
            ["expires_at", "idle_expires_at"].iter().filter_map(|name| sandbox[*name].as_str()).min();
        table.row([
            name,
            state,
            backend,
            tier,
            image,
            runs,
            created,
            used,
            expires.unwrap_or("-").to_owned(),
        ]);
    }
    if table.is_empty() {
        return "No sandboxes. Create one with `isle create NAME` or `isle exec NAME -- COMMAND`.\n"
            .to_owned();
    }
    table.render(Paint::for_stdout())
}
