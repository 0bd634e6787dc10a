//! `isle reset`: sandboxes made anew. One that fails does not keep the others.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::Context;
use crate::arguments::ResetArguments;
use crate::output::{Form, print, print_json, show_error};

pub(super) async fn reset(context: &Context, arguments: ResetArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    let mut done: Vec<Value> = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for name in arguments.names {
        match client.call("reset", json!({ "sandbox": name })).await {
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
        print_json(&json!({ "reset": done }));
    }
    Ok(code)
}
