//! `isle contexts`: the persistent interpreters of a sandbox.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::json;

use super::{Context, fields};
use crate::arguments::ContextsArguments;
use crate::output::{Paint, Table, show};

pub(super) async fn contexts(context: &Context, arguments: ContextsArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    let sandbox = arguments.name;
    let wanted = [
        ("interrupt_context", arguments.interrupt),
        ("restart_context", arguments.restart),
        ("remove_context", arguments.remove),
    ];
    for (operation, name) in wanted {
        if let Some(name) = name {
            let input = json!({ "sandbox": sandbox, "context": name });
            let answer = client.call(operation, input).await?;
            return show(context.form, &answer, |_| format!("{name}\n"));
        }
    }
    let answer = client.call("list_contexts", json!({ "sandbox": sandbox })).await?;
    show(context.form, &answer, |answer| {
        let mut table = Table::new(&["CONTEXT", "LANGUAGE", "USER", "ALIVE", "CALLS", "AGE", "RUN"]);
        for entry in fields::list(answer, "contexts") {
            table.row([
                fields::text(entry, "name"),
                fields::text(entry, "language"),
                fields::text(entry, "user"),
                fields::text(entry, "alive"),
                fields::text(entry, "calls"),
                fields::millis(entry, "age_ms"),
                fields::text(entry, "run_id"),
            ]);
        }
        if table.is_empty() {
            return "No contexts. Create one with `isle code NAME --context CONTEXT 'x = 1'`.\n".to_owned();
        }
        table.render(Paint::for_stdout())
    })
}
