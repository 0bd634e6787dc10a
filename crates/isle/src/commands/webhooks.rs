//! `isle webhooks`: HTTP endpoints that receive events.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::{Context, fields};
use crate::arguments::{WebhooksArguments, WebhooksCommand};
use crate::output::{Form, Paint, Table, print_json, print_stderr, show};

pub(super) async fn webhooks(context: &Context, arguments: WebhooksArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    match arguments.command {
        WebhooksCommand::Add(arguments) => {
            let input = json!({
                "url": arguments.url,
                "kind": arguments.kind,
                "sandbox": arguments.sandbox,
                "all": arguments.all,
                "addresses": arguments.address,
            });
            let answer = client.call("add_webhook", input).await?;
            if context.form == Form::Human {
                let id = fields::text(&answer, "webhook");
                print_stderr(&format!(
                    "isle: created webhook {id} with this signing secret; it is shown only once"
                ));
            }
            show(context.form, &answer, |answer| format!("{}\n", fields::text(answer, "secret")))
        }
        WebhooksCommand::List(arguments) => {
            let answer = client.call("list_webhooks", json!({ "all": arguments.all })).await?;
            show(context.form, &answer, |answer| {
                let mut table = Table::new(&[
                    "WEBHOOK",
                    "NAMESPACE",
                    "URL",
                    "EVENTS",
                    "SENT",
                    "PENDING",
                    "DROPPED",
                    "STATE",
                ]);
                for entry in fields::list(answer, "webhooks") {
                    table.row(cells(entry));
                }
                if table.is_empty() {
                    return "No webhooks. Add one with `isle webhooks add URL`.\n".to_owned();
                }
                table.render(Paint::for_stdout())
            })
        }
        WebhooksCommand::Remove(arguments) => {
            let mut removed: Vec<Value> = Vec::new();
            for webhook in arguments.webhooks {
                let answer = client.call("remove_webhook", json!({ "webhook": webhook })).await?;
                match context.form {
                    Form::Human => drop(show(context.form, &answer, |_| format!("{webhook}\n"))?),
                    Form::Json => removed.push(answer),
                }
            }
            if context.form == Form::Json {
                print_json(&Value::Array(removed));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn cells(entry: &Value) -> [String; 8] {
    let kinds: Vec<String> =
        fields::list(entry, "kinds").iter().filter_map(|kind| Some(kind.as_str()?.to_owned())).collect();
    let state = match entry.get("last_error") {
        Some(_) => fields::text(entry, "last_error"),
        None => "ok".to_owned(),
    };
    let namespace = match entry.get("namespace") {
        Some(_) => fields::text(entry, "namespace"),
        None => "(all)".to_owned(),
    };
    [
        fields::text(entry, "webhook"),
        namespace,
        fields::text(entry, "url"),
        if kinds.is_empty() { "all".to_owned() } else { kinds.join(",") },
        fields::text(entry, "delivered"),
        fields::text(entry, "behind"),
        fields::text(entry, "lost"),
        state,
    ]
}
