//! Calls one operation for each of several names; an error does not stop the others.

use std::process::ExitCode;

use isle_client::{Client, Result};
use serde_json::{Map, Value};

use super::Context;
use crate::output::{Form, print, print_json, show_error};

/// Calls an operation for each name; prints the names, or with `--json` all results under `key`.
pub(super) async fn call_each(
    context: &Context,
    client: &Client,
    operation: &str,
    names: &[String],
    input: impl Fn(&str) -> Value,
    key: &str,
) -> Result<ExitCode> {
    let (mut done, mut code) = (Vec::new(), ExitCode::SUCCESS);
    for name in names {
        match client.call(operation, input(name)).await {
            Ok(answer) => {
                if context.form == Form::Human {
                    print(&format!("{name}\n"));
                }
                done.push(answer);
            }
            Err(error) => {
                show_error(&error, context.form);
                code = ExitCode::FAILURE;
            }
        }
    }
    if context.form == Form::Json {
        print_json(&Value::Object(Map::from_iter([(key.to_owned(), Value::Array(done))])));
    }
    Ok(code)
}
