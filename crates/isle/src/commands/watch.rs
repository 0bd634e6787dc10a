//! `isle watch`: prints file changes in a sandbox, one per line, until interrupted.

use std::process::ExitCode;

use isle_client::Result;
use isle_core::values::{GuestPath, SandboxName};
use isle_core::{Code, Error};
use serde_json::{Value, json};

use super::Context;
use crate::arguments::WatchArguments;
use crate::output::{Form, escaped, print, print_stderr};

pub(super) async fn watch(context: &Context, arguments: WatchArguments) -> Result<ExitCode> {
    let sandbox: SandboxName = arguments.name.parse()?;
    let path: GuestPath = arguments.path.parse()?;
    let client = context.client().await?;
    let mut watched = client.watch(sandbox.as_str(), path.as_str(), !arguments.flat).await?;
    while let Some(event) = watched.next().await? {
        if context.form == Form::Json {
            print(&format!("{}\n", json!({ "event": event.name, "data": event.data })));
        }
        match event.name.as_str() {
            "watching" if context.form == Form::Human => {
                print_stderr(&format!("watching {} in {sandbox}", escaped(&path.absolute())));
            }
            "file" if context.form == Form::Human => print(&line(&event.data)),
            "overflow" if context.form == Form::Human => {
                print_stderr("isle: some changes were not reported; check the files");
            }
            "ended" => {
                return match event.data["error"]["message"].as_str() {
                    None => Ok(ExitCode::SUCCESS),
                    Some(why) => Err(Error::new(Code::WatchEnded, format!("the watch ended: {why}"))
                        .next("start the watch again when the sandbox exists")
                        .into()),
                };
            }
            _ => {}
        }
    }
    Err(Error::new(Code::DaemonUnavailable, "the daemon closed the watch")
        .next("start the watch again")
        .into())
}

fn line(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().map(escaped).unwrap_or_default();
    let slash = if event["directory"] == json!(true) { "/" } else { "" };
    let from = if event["from"].is_null() { String::new() } else { format!("{} -> ", text("from")) };
    format!("{:<8} {from}{}{slash}\n", text("kind"), text("path"))
}
