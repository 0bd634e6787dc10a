//! `isle secret`: the vault, and the secrets attached to sandboxes.

use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use isle_client::Result;
use isle_core::{Code, Error};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::{Value, json};

use super::{Context, fields};
use crate::arguments::{SecretArguments, SecretCommand, SecretSetArguments};
use crate::output::{Form, Paint, Table, escaped, print_json, print_stderr, show};
use crate::paths::cannot;

/// Larger than any secret.
const MAX_BYTES: u64 = 1024 * 1024;

pub(super) async fn secret(context: &Context, arguments: SecretArguments) -> Result<ExitCode> {
    match arguments.command {
        SecretCommand::Set(arguments) => set(context, arguments).await,
        SecretCommand::List { sandbox } => {
            let answer = context.client().await?.call("secret_list", json!({ "sandbox": sandbox })).await?;
            if let Some(why) = answer["locked"].as_str() {
                print_stderr(&format!("isle: {}", escaped(why)));
            }
            show(context.form, &answer, |answer| match &answer["attached"] {
                Value::Array(attached) => attached_table(attached),
                _ => table(answer),
            })
        }
        SecretCommand::Remove { names } => {
            let client = context.client().await?;
            let mut removed = Vec::new();
            for name in names {
                let answer = client.call("secret_remove", json!({ "name": name })).await?;
                match context.form {
                    Form::Human => drop(show(context.form, &answer, |_| format!("{}\n", escaped(&name)))?),
                    Form::Json => removed.push(answer),
                }
            }
            if context.form == Form::Json {
                print_json(&Value::Array(removed));
            }
            Ok(ExitCode::SUCCESS)
        }
        SecretCommand::Attach(arguments) => {
            let input = json!({
                "sandbox": arguments.sandbox,
                "secrets": arguments.names,
                "expose": arguments.expose,
            });
            attached(context, "secret_attach", input).await
        }
        SecretCommand::Detach { sandbox, names } => {
            attached(context, "secret_detach", json!({ "sandbox": sandbox, "secrets": names })).await
        }
    }
}

async fn set(context: &Context, arguments: SecretSetArguments) -> Result<ExitCode> {
    let value = read_value(&arguments)?;
    let hosts = (!arguments.host.is_empty()).then_some(arguments.host);
    let mut input = json!({ "name": arguments.name, "value": value });
    if let Some(hosts) = hosts {
        input["hosts"] = json!(hosts);
    }
    if !arguments.place.is_empty() {
        input["places"] = json!(arguments.place);
    }
    if let Some(expires) = arguments.expires {
        input["expires"] = json!(expires);
    }
    let answer = context.client().await?.call("secret_set", input).await?;
    if let Some(note) = answer["note"].as_str() {
        print_stderr(&format!("isle: {}", escaped(note)));
    }
    show(context.form, &answer, |answer| {
        let hosts = joined(answer, "hosts");
        let hosts = if hosts.is_empty() { "none".to_owned() } else { hosts };
        format!(
            "{}  version {}, hosts: {hosts}, places: {}\n",
            escaped(&fields::text(answer, "name")),
            fields::text(answer, "version"),
            joined(answer, "places")
        )
    })
}

async fn attached(context: &Context, operation: &str, input: Value) -> Result<ExitCode> {
    let answer = context.client().await?.call(operation, input).await?;
    show(context.form, &answer, |answer| attached_table(fields::list(answer, "attached")))
}

/// Reads the value from a file, from a prompt without echo, or from a pipe. One trailing newline is removed,
/// since editors and `echo` add it.
fn read_value(arguments: &SecretSetArguments) -> Result<String> {
    let standard_input = Path::new("standard input");
    let mut value = match &arguments.file {
        Some(path) => {
            read_all(&mut std::fs::File::open(path).map_err(|error| cannot("open", path, &error))?, path)?
        }
        None if std::io::stdin().is_terminal() => prompt(&arguments.name)?,
        None => read_all(&mut std::io::stdin().lock(), standard_input)?,
    };
    if value.ends_with('\n') {
        value.pop();
        if value.ends_with('\r') {
            value.pop();
        }
    }
    Ok(value)
}

fn read_all(source: &mut dyn Read, from: &Path) -> Result<String> {
    let mut value = String::new();
    source.take(MAX_BYTES).read_to_string(&mut value).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => Error::new(Code::InvalidArgument, "the value is not UTF-8 text")
            .next("encode it, for example with base64")
            .into(),
        _ => cannot("read", from, &error),
    })?;
    Ok(value)
}

fn prompt(name: &str) -> Result<String> {
    let terminal = rustix::stdio::stdin();
    let before = tcgetattr(terminal).map_err(Error::internal)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    print_stderr(&format!("Value of {} (not echoed):", escaped(name)));
    tcsetattr(terminal, OptionalActions::Flush, &hidden).map_err(Error::internal)?;
    let mut line = String::new();
    let read = std::io::stdin().lock().take(MAX_BYTES).read_line(&mut line);
    tcsetattr(terminal, OptionalActions::Now, &before).map_err(Error::internal)?;
    read.map_err(|error| cannot("read", Path::new("the terminal"), &error))?;
    Ok(line)
}

fn joined(value: &Value, name: &str) -> String {
    let texts: Vec<&str> = fields::list(value, name).iter().filter_map(Value::as_str).collect();
    texts.join(" ")
}

fn table(answer: &Value) -> String {
    let mut table = Table::new(&["NAME", "VERSION", "HOSTS", "PLACES", "SET", "EXPIRES"]);
    for secret in fields::list(answer, "secrets") {
        let hosts = joined(secret, "hosts");
        let expires = match (secret["expired"].as_bool(), secret.get("expires_at")) {
            (Some(true), _) => "expired".to_owned(),
            (_, Some(_)) => fields::text(secret, "expires_at"),
            (_, None) => "never".to_owned(),
        };
        table.row([
            fields::text(secret, "name"),
            fields::text(secret, "version"),
            if hosts.is_empty() { "-".to_owned() } else { hosts },
            joined(secret, "places"),
            fields::text(secret, "set_at"),
            expires,
        ]);
    }
    if table.is_empty() {
        return "No secrets. Set one with `isle secret set NAME`.\n".to_owned();
    }
    let remains = escaped(&fields::text(answer, "remains"));
    format!("{}Not protected: {remains}\n", table.render(Paint::for_stdout()))
}

fn attached_table(attached: &[Value]) -> String {
    let mut table = Table::new(&["SECRET", "VARIABLE", "CONTENT"]);
    for one in attached {
        let seen = if one["exposed"] == json!(true) { "value, masked" } else { "placeholder" };
        table.row([fields::text(one, "name"), fields::text(one, "variable"), seen.to_owned()]);
    }
    if table.is_empty() {
        return "No secrets attached. Attach one with `isle secret attach SANDBOX NAME`.\n".to_owned();
    }
    table.render(Paint::for_stdout())
}
