//! `isle rm`: destroys sandboxes; an error does not stop the others.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::{Context, fields};
use crate::arguments::RmArguments;
use crate::output::{Form, print, print_json, show_error};

pub(super) async fn rm(context: &Context, arguments: RmArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    let names = if arguments.all {
        let answer = client.call("list", json!({})).await?;
        // Children are destroyed with their parents.
        let own = fields::list(&answer, "sandboxes").iter().filter(|sandbox| sandbox["parent"].is_null());
        own.map(|sandbox| fields::text(sandbox, "name")).collect()
    } else {
        arguments.names
    };
    let mut destroyed: Vec<Value> = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for name in names {
        let input = json!({ "sandbox": name, "wipe": arguments.wipe });
        match client.call("destroy", input).await {
            Ok(_) => {
                if context.form == Form::Human {
                    print(&format!("{name}\n"));
                }
                destroyed.push(json!(name));
            }
            Err(error) => {
                show_error(&error, context.form);
                code = ExitCode::FAILURE;
            }
        }
    }
    if context.form == Form::Json {
        print_json(&json!({ "destroyed": destroyed }));
    }
    Ok(code)
}
