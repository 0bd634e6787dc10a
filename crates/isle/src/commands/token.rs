//! `isle token`: access tokens of namespaces, for clients over TCP.

use std::process::ExitCode;

use isle_client::Result;
use isle_core::{Code, Error};
use serde_json::{Value, json};

use super::{Context, fields};
use crate::arguments::{TokenArguments, TokenCommand};
use crate::output::{Form, Paint, Table, print_json, print_stderr, show};

pub(super) async fn token(context: &Context, arguments: TokenArguments) -> Result<ExitCode> {
    let (client, namespace) = context.operator_client().await?;
    match arguments.command {
        TokenCommand::Create => {
            let Some(namespace) = namespace else {
                return Err(Error::new(Code::InvalidArgument, "no namespace given")
                    .next("pass a namespace: isle token create --namespace NAME")
                    .into());
            };
            let answer = client.call("create_token", json!({ "namespace": namespace })).await?;
            if context.form == Form::Human {
                print_stderr(&format!(
                    "isle: created token {} for namespace {namespace}; it is shown only once",
                    fields::text(&answer, "id")
                ));
            }
            show(context.form, &answer, |answer| format!("{}\n", fields::text(answer, "token")))
        }
        TokenCommand::List => {
            let answer = client.call("list_tokens", json!({ "namespace": namespace })).await?;
            show(context.form, &answer, |answer| {
                let mut table = Table::new(&["TOKEN ID", "NAMESPACE", "CREATED", "LAST USED"]);
                for entry in fields::list(answer, "tokens") {
                    let used = entry.get("last_used_at").map(|_| fields::text(entry, "last_used_at"));
                    table.row([
                        fields::text(entry, "id"),
                        fields::text(entry, "namespace"),
                        fields::text(entry, "created_at"),
                        used.unwrap_or_else(|| "never".to_owned()),
                    ]);
                }
                if table.is_empty() {
                    return "No tokens. Create one with `isle token create --namespace NAME`.\n".to_owned();
                }
                table.render(Paint::for_stdout())
            })
        }
        TokenCommand::Revoke(arguments) => {
            let mut revoked: Vec<Value> = Vec::new();
            for token in arguments.tokens {
                let answer = client.call("revoke_token", json!({ "token": token })).await?;
                match context.form {
                    Form::Human => drop(show(context.form, &answer, |_| format!("{token}\n"))?),
                    Form::Json => revoked.push(answer),
                }
            }
            if context.form == Form::Json {
                print_json(&Value::Array(revoked));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
