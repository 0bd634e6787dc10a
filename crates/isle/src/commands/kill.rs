//! `isle kill`: kills runs, or sends them a signal.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::Context;
use crate::arguments::KillArguments;
use crate::output::{Form, print, print_json, show_error};

pub(super) async fn kill(context: &Context, arguments: KillArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    let mut answers: Vec<Value> = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for run in &arguments.runs {
        let mut input = json!({ "run_id": run });
        if arguments.force {
            input["force"] = json!(true);
        }
        if let Some(signal) = &arguments.signal {
            input["signal"] = json!(signal);
        }
        match client.call("kill", input).await {
            Ok(answer) => {
                if context.form == Form::Human {
                    print(&format!("{run}\n"));
                }
                answers.push(answer);
            }
            Err(error) => {
                show_error(&error, context.form);
                code = ExitCode::FAILURE;
            }
        }
    }
    if context.form == Form::Json {
        print_json(&json!(answers));
    }
    Ok(code)
}
