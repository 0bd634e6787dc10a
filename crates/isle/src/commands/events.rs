//! `isle events`: past events, oldest first, and new ones with `--follow`.

use std::process::ExitCode;

use isle_client::{Client, Result};
use isle_core::{Code, Error};
use serde_json::{Value, json};

use super::{Context, fields};
use crate::arguments::EventsArguments;
use crate::output::{Form, Paint, Table, escaped, escaped_json, print, print_stderr, show};

pub(super) async fn events(context: &Context, arguments: EventsArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    if !arguments.follow {
        let answer = fields::pages(&client, "events", input(&arguments), "events", arguments.limit).await?;
        return show(context.form, &answer, |answer| {
            let mut table = Table::new(&["ID", "TIME", "KIND", "SANDBOX", "MESSAGE"]);
            for event in fields::list(answer, "events").iter().rev() {
                table.row(cells(event));
            }
            if table.is_empty() { "No events.\n".to_owned() } else { table.render(Paint::for_stdout()) }
        });
    }
    let after = match arguments.after {
        Some(after) => after,
        None if arguments.limit == 0 => newest(&client).await?,
        None => {
            let answer =
                fields::pages(&client, "events", input(&arguments), "events", arguments.limit).await?;
            for event in fields::list(&answer, "events").iter().rev() {
                print_event(context.form, event);
            }
            answer["newest"].as_u64().unwrap_or(0)
        }
    };
    follow(context, &client, &arguments, after).await
}

fn input(arguments: &EventsArguments) -> Value {
    json!({
        "kind": arguments.kind,
        "sandbox": arguments.sandbox,
        "run_id": arguments.run,
        "since": arguments.since,
        "limit": arguments.limit,
        "all": arguments.all,
    })
}

async fn newest(client: &Client) -> Result<u64> {
    let answer = client.call("events", json!({ "limit": 1 })).await?;
    Ok(answer["newest"].as_u64().unwrap_or(0))
}

async fn follow(
    context: &Context,
    client: &Client,
    arguments: &EventsArguments,
    after: u64,
) -> Result<ExitCode> {
    let after = after.to_string();
    let mut filters = vec![("after", after.as_str())];
    filters.extend(arguments.kind.iter().map(|kind| ("kind", kind.as_str())));
    filters.extend(arguments.sandbox.as_deref().map(|name| ("sandbox", name)));
    if arguments.all {
        filters.push(("all", "true"));
    }
    filters.extend(arguments.run.as_deref().map(|run| ("run_id", run)));
    let mut stream = client.follow_events(&filters).await?;
    let mut last = after.clone();
    while let Some(event) = stream.next().await? {
        last = event.id.to_string();
        match (event.name.as_str(), context.form) {
            ("lost", Form::Human) => {
                print_stderr(&format!("isle: {} events were dropped", event.data["events"]));
            }
            ("lost", Form::Json) => print(&format!("{}\n", json!({ "lost": event.data["events"] }))),
            _ => print_event(context.form, &event.data),
        }
    }
    Err(Error::new(Code::DaemonUnavailable, "the daemon closed the event stream")
        .next(format!("continue with `isle events --follow --after {last}`"))
        .into())
}

fn print_event(form: Form, event: &Value) {
    match form {
        Form::Json => print(&format!("{}\n", escaped_json(&event.to_string()))),
        Form::Human => {
            let [_, time, kind, sandbox, message] = cells(event);
            print(&format!(
                "{}  {:<19}  {:<12}  {}\n",
                escaped(&time),
                escaped(&kind),
                escaped(&sandbox),
                escaped(&message)
            ));
        }
    }
}

fn cells(event: &Value) -> [String; 5] {
    ["id", "time", "kind", "sandbox", "message"].map(|name| fields::text(event, name))
}
