//! Starts, lists and stops live syncs, which run in the daemon.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::remote;
use crate::arguments::{StartArguments, StopArguments};
use crate::commands::{Context, fields};
use crate::output::{Form, Paint, Table, escaped, human_bytes, print, print_json, print_stderr};
use crate::paths::cannot;

pub(super) async fn start(context: &Context, arguments: StartArguments) -> Result<ExitCode> {
    let remote = remote(&arguments.to)?;
    let host = std::path::absolute(&arguments.from)
        .and_then(|path| path.canonicalize())
        .map_err(|error| cannot("read", &arguments.from, &error))?;
    let input = json!({
        "sandbox": remote.sandbox.as_str(),
        "host_path": host.display().to_string(),
        "path": remote.path.as_str(),
        "exclude": arguments.exclude,
        "git": arguments.git,
        "ignored": arguments.ignored,
    });
    let sync = context.client().await?.call("sync_start", input).await?;
    match context.form {
        Form::Json => print_json(&sync),
        Form::Human => {
            let text = |name: &str| escaped(sync[name].as_str().unwrap_or_default());
            print(&format!("{}\n", text("sync")));
            print_stderr(&format!("{} follows {}", text("path"), text("host_path")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn stop(context: &Context, arguments: StopArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    for sync in &arguments.syncs {
        let stopped = client.call("sync_stop", json!({ "sync": sync })).await?;
        match context.form {
            Form::Json => print_json(&stopped),
            Form::Human => print_stderr(&format!("stopped {}", escaped(sync))),
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn ls(context: &Context) -> Result<ExitCode> {
    let listed = context.client().await?.call("sync_list", json!({})).await?;
    crate::output::show(context.form, &listed, table)
}

fn table(listed: &Value) -> String {
    let mut table =
        Table::new(&["SYNC", "SANDBOX", "PATH", "HOST PATH", "STATE", "FILES", "BYTES", "REMOVED"]);
    for sync in fields::list(listed, "syncs") {
        let text = |name: &str| fields::text(sync, name);
        let number = |name: &str| sync[name].as_u64().unwrap_or(0);
        table.row([
            text("sync"),
            text("sandbox"),
            text("path"),
            text("host_path"),
            text("state"),
            number("files_sent").to_string(),
            human_bytes(number("bytes_sent")),
            number("removed").to_string(),
        ]);
    }
    if table.is_empty() {
        return "No live syncs. Start one with `isle sync start DIR NAME`.\n".to_owned();
    }
    table.render(Paint::for_stdout())
}
