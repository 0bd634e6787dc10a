//! `isle grants`: network grants of sandboxes, pending requests, and their approval.

use std::process::ExitCode;

use isle_client::Result;
use isle_core::{Code, Error};
use serde_json::{Value, json};

use super::network::{revoke, shared_table, table};
use super::{Context, fields};
use crate::arguments::{ApproveArguments, GrantsArguments, GrantsCommand};
use crate::output::{Form, Paint, Table, escaped, escaped_json, print, show};

pub(super) async fn grants(context: &Context, arguments: GrantsArguments) -> Result<ExitCode> {
    match arguments.command.unwrap_or(GrantsCommand::List { name: arguments.name }) {
        GrantsCommand::List { name } => list(context, name).await,
        GrantsCommand::Approve(arguments) => approve(context, arguments).await,
        GrantsCommand::Deny { request } => {
            let answer = context.client().await?.call("deny_request", json!({ "request": request })).await?;
            show(context.form, &answer, |answer| {
                let denied = &answer["denied"];
                format!("denied {} to {}\n", fields::text(denied, "grant"), fields::text(denied, "sandbox"))
            })
        }
        GrantsCommand::Revoke(arguments) => revoke(context, arguments).await,
        GrantsCommand::Watch { all } => watch(context, all).await,
    }
}

async fn list(context: &Context, name: Option<String>) -> Result<ExitCode> {
    let client = context.client().await?;
    let asked = client.call("network_requests", json!({ "sandbox": name })).await;
    let mut answer = match &name {
        Some(name) => client.call("grants", json!({ "sandbox": name })).await?,
        None => client.call("namespace_grants", json!({})).await?,
    };
    // Requests are visible to the operator only.
    if let Ok(asked) = asked {
        answer["requests"] = asked["requests"].clone();
    }
    show(context.form, &answer, |answer| {
        let granted = if name.is_some() { table(answer) } else { shared_table(answer) };
        granted + &requests(answer)
    })
}

fn requests(answer: &Value) -> String {
    let mut table = Table::new(&["REQUEST", "SANDBOX", "TARGET", "STATE", "COUNT", "EXPIRES IN"]);
    for request in fields::list(answer, "requests") {
        table.row([
            fields::text(request, "request"),
            fields::text(request, "sandbox"),
            fields::text(request, "grant"),
            fields::text(request, "state"),
            request["times"].to_string(),
            format!("{}s", request["seconds_left"]),
        ]);
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.render(Paint::for_stdout())) }
}

async fn approve(context: &Context, arguments: ApproveArguments) -> Result<ExitCode> {
    let ApproveArguments { request, scope, lifetime } = arguments;
    let input = json!({ "request": request, "scope": scope, "lifetime": lifetime });
    let answer = context.client().await?.call("approve_request", input).await?;
    show(context.form, &answer, granted)
}

/// Describes a new grant.
fn granted(answer: &Value) -> String {
    let ports: Vec<String> = fields::list(answer, "ports")
        .iter()
        .zip(fields::list(answer, "protocols"))
        .map(|(port, protocol)| format!("{port} ({})", protocol.as_str().unwrap_or_default()))
        .collect();
    let whom = match answer["scope"].as_str() {
        Some("once") if answer["requests"].is_u64() => {
            format!("one request of {}", fields::text(answer, "sandbox"))
        }
        Some("once") => format!("one connection of {}", fields::text(answer, "sandbox")),
        Some("run") => format!("the requesting run in {}", fields::text(answer, "sandbox")),
        Some("namespace") => format!("all sandboxes of the namespace {}", fields::text(answer, "namespace")),
        _ => fields::text(answer, "sandbox"),
    };
    let left = answer["seconds_left"].as_u64().map_or_else(String::new, |left| format!(", for {left}s"));
    let only = answer["only"].as_str().map_or_else(String::new, |only| format!(", for {only} only"));
    format!(
        "granted to {}: {}, port {}{}{left}\n",
        escaped(&whom),
        escaped(&fields::text(answer, "host")),
        ports.join(" and "),
        escaped(&only)
    )
}

async fn watch(context: &Context, all: bool) -> Result<ExitCode> {
    let client = context.client().await?;
    let mut filters = vec![("kind", "network_requested"), ("kind", "network_answered")];
    if all {
        filters.push(("all", "true"));
    }
    let mut stream = client.follow_events(&filters).await?;
    // Pending requests are listed after the stream has started, so that none is missed.
    let waiting = client.call("network_requests", json!({ "all": all })).await?;
    for request in fields::list(&waiting, "requests").iter().filter(|one| one["state"] == "pending") {
        print_request(context.form, request, &fields::text(request, "sandbox"), "requests");
    }
    while let Some(event) = stream.next().await? {
        let (data, sandbox) = (&event.data["data"], fields::text(&event.data, "sandbox"));
        match event.data["kind"].as_str() {
            Some("network_requested") => print_request(context.form, data, &sandbox, "requests"),
            Some("network_answered") if data["answer"] == "approved" => {
                print_request(context.form, data, &sandbox, "was granted");
            }
            Some("network_answered") => print_request(context.form, data, &sandbox, "was denied"),
            _ => {}
        }
    }
    Err(Error::new(Code::DaemonUnavailable, "the daemon closed the event stream")
        .next("restart the watch with `isle grants watch`")
        .into())
}

fn print_request(form: Form, request: &Value, sandbox: &str, what: &str) {
    match form {
        Form::Json => print(&format!("{}\n", escaped_json(&request.to_string()))),
        Form::Human => {
            let (id, grant) = (fields::text(request, "request"), fields::text(request, "grant"));
            print(&format!("{}  {} {what} {}\n", escaped(&id), escaped(sandbox), escaped(&grant)));
        }
    }
}
