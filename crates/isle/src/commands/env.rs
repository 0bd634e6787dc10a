//! `isle env`: persistent environment variables of a sandbox.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::{Context, fields, interactive};
use crate::arguments::{EnvAction, EnvArguments};
use crate::output::{Paint, Table, escaped, print_stderr, show};

pub(super) async fn env(context: &Context, arguments: EnvArguments) -> Result<ExitCode> {
    let sandbox = arguments.name;
    let input = match arguments.action {
        EnvAction::Set { variables } => {
            json!({ "sandbox": sandbox, "action": "set", "variables": interactive::environment(&variables)? })
        }
        EnvAction::Unset { names } => json!({ "sandbox": sandbox, "action": "unset", "names": names }),
        EnvAction::Ls => json!({ "sandbox": sandbox, "action": "list" }),
    };
    let answer = context.client().await?.call("env", input).await?;
    for warning in fields::list(&answer, "warnings") {
        print_stderr(&format!("isle: {}", escaped(warning.as_str().unwrap_or_default())));
    }
    show(context.form, &answer, |answer| match answer["action"].as_str() {
        Some("list") => table(answer),
        _ => fields::list(answer, "changed")
            .iter()
            .filter_map(Value::as_str)
            .fold(String::new(), |all, name| all + name + "\n"),
    })
}

fn table(answer: &Value) -> String {
    let mut table = Table::new(&["NAME", "VALUE"]);
    for variable in fields::list(answer, "variables") {
        let value = match &variable["value"] {
            Value::String(value) => value.clone(),
            _ => "(hidden: looks like a secret)".to_owned(),
        };
        table.row([fields::text(variable, "name"), value]);
    }
    if table.is_empty() {
        return "No variables. Set one with `isle env NAME set A=1`.\n".to_owned();
    }
    table.render(Paint::for_stdout())
}
