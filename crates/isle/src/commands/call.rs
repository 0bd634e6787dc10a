//! `isle call`: calls any API operation by name with JSON arguments.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use isle_api::{Definition, Method, Registry};
use isle_client::Result;
use isle_core::{Code, Error};
use serde_json::{Value, json};

use super::{Context, block_on};
use crate::arguments::CallArguments;
use crate::output::{Form, Paint, Progress, Table, print, print_json, show};
use crate::paths::cannot;

pub(super) fn call(context: &Context, arguments: CallArguments) -> Result<ExitCode> {
    let registry = Registry::standard();
    let Some(operation) = arguments.operation else { return list(context, &registry) };
    let entry = registry.get(&operation)?;
    if arguments.help {
        return describe(context, entry);
    }
    if operation == "secret_set" && arguments.input.as_deref().is_some_and(|text| text != "-") {
        return Err(Error::new(Code::InvalidArgument, "secrets are not accepted on the command line")
            .next("pass the input on standard input: `isle call secret_set -`, or use `isle secret set`")
            .next("use another value: this one may be in your shell history")
            .into());
    }
    let input = read_input(arguments.input.as_deref())?;
    block_on(async {
        let client = context.client().await?;
        let mut progress = Progress::new(context.form, "", None);
        let answer = if progress.is_shown() {
            client.call_watched(&operation, input, |message| progress.message(message)).await
        } else {
            client.call(&operation, input).await
        };
        drop(progress);
        let answer = answer?;
        print_json(&answer);
        Ok(ExitCode::SUCCESS)
    })
}

fn read_input(given: Option<&str>) -> Result<Value> {
    let text = match given {
        None => return Ok(json!({})),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| cannot("read", Path::new("standard input"), &error))?;
            text
        }
        Some(text) => text.to_owned(),
    };
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(invalid_input("the input is not a JSON object")),
        Err(error) => Err(invalid_input(&format!("the input is not valid JSON: {error}"))),
    }
}

fn invalid_input(message: &str) -> isle_client::ClientError {
    Error::new(Code::InvalidArgument, message)
        .next("pass a JSON object in single quotes, such as '{\"sandbox\": \"default\"}'")
        .into()
}

fn list(context: &Context, registry: &Registry) -> Result<ExitCode> {
    let all: Vec<Value> = registry.definitions().iter().map(description).collect();
    show(context.form, &json!(all), |_| {
        let mut table = Table::new(&["OPERATION", "TOOLSET", "ROUTE", "DESCRIPTION"]);
        for entry in registry.definitions() {
            table.row([
                entry.name.to_owned(),
                entry.toolset.name().to_owned(),
                route(entry),
                entry.title.to_owned(),
            ]);
        }
        table.render(Paint::for_stdout()) + "\nRun `isle call OPERATION --help` for its arguments.\n"
    })
}

fn describe(context: &Context, entry: &Definition) -> Result<ExitCode> {
    match context.form {
        Form::Json => print_json(&description(entry)),
        Form::Human => print(&format!(
            "{}: {}\n\n{}\n\n{}\n\nArguments:\n{:#}\n\nResult:\n{:#}\n",
            entry.name,
            entry.title,
            entry.description,
            route(entry),
            json!(entry.input_schema()),
            json!(entry.output_schema()),
        )),
    }
    Ok(ExitCode::SUCCESS)
}

fn description(entry: &Definition) -> Value {
    json!({
        "name": entry.name,
        "title": entry.title,
        "description": entry.description,
        "route": route(entry),
        "input_schema": entry.input_schema(),
        "output_schema": entry.output_schema(),
    })
}

fn route(entry: &Definition) -> String {
    let method = match entry.route.method {
        Method::Get => "GET",
        Method::Post => "POST",
        Method::Delete => "DELETE",
    };
    format!("{method} /v1{}", entry.route.path)
}
