//! `isle install`: installs packages in a sandbox. Exits with 1 when the installation failed.

use std::process::ExitCode;

use isle_api::shapes::RunResult;
use isle_client::Result;
use isle_core::Error;
use serde_json::{Value, json};

use super::{Context, fields};
use crate::arguments::InstallArguments;
use crate::output::{Form, escaped, print, print_json, print_stderr};

/// How long one call waits; the installation itself is limited by its timeout.
const WAIT: &str = "300s";

pub(super) async fn install(context: &Context, arguments: InstallArguments) -> Result<ExitCode> {
    let mut input = json!({
        "sandbox": arguments.name,
        "packages": arguments.packages,
        "allow_urls": arguments.allow_urls,
        "allow": arguments.allow,
        "wait": WAIT,
    });
    for (name, value) in
        [("manager", arguments.manager), ("index", arguments.index), ("timeout", arguments.timeout)]
    {
        if let Some(value) = value {
            input[name] = Value::String(value);
        }
    }
    let client = context.client().await?;
    let mut answer = client.call("install", input).await?;
    while answer["run"]["state"] == "running" {
        let waited = json!({ "run_id": answer["run"]["run_id"], "timeout": WAIT });
        answer["run"] = client.call("wait", waited).await?;
        answer["installed"] = json!(answer["run"]["state"] == "completed");
    }
    let installed = answer["installed"] == true;
    match context.form {
        Form::Json => print_json(&answer),
        Form::Human if installed => {
            for package in fields::list(&answer, "packages") {
                print(&format!("{}\n", escaped(package.as_str().unwrap_or_default())));
            }
        }
        Form::Human => {
            let run: RunResult = serde_json::from_value(answer["run"].clone()).map_err(Error::internal)?;
            for text in [&run.stdout, &run.stderr] {
                if !text.is_empty() {
                    print_stderr(text.lines().map(escaped).collect::<Vec<_>>().join("\n").as_str());
                }
            }
            let note = run.note.map_or_else(String::new, |note| format!(": {}", escaped(&note)));
            print_stderr(&format!("isle: installation failed: {}{note}", run.state.as_str()));
            if let Some(hint) = answer["hint"].as_str() {
                print_stderr(&format!("hint: {}", escaped(hint)));
            }
        }
    }
    Ok(if installed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
