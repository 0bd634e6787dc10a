//! `isle history`: runs, newest first.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::json;

use super::{Context, fields};
use crate::arguments::HistoryArguments;
use crate::output::{Paint, Table, shortened, show};

pub(super) async fn history(context: &Context, arguments: HistoryArguments) -> Result<ExitCode> {
    let input = json!({ "sandbox": arguments.name, "limit": arguments.limit });
    let client = context.client().await?;
    let answer = fields::pages(&client, "history", input, "runs", arguments.limit).await?;
    show(context.form, &answer, |answer| {
        let mut table = Table::new(&["RUN", "SANDBOX", "STATE", "EXIT", "STARTED", "TOOK", "COMMAND"]);
        for run in fields::list(answer, "runs") {
            table.row([
                fields::text(run, "run_id"),
                fields::text(run, "sandbox"),
                fields::text(run, "state"),
                fields::text(run, "exit_code"),
                fields::text(run, "started_at"),
                fields::millis(run, "duration_ms"),
                shortened(&fields::text(run, "command"), 60),
            ]);
        }
        if table.is_empty() { "No runs.\n".to_owned() } else { table.render(Paint::for_stdout()) }
    })
}
