//! `isle watch`: what happens to files of a sandbox, line by line, until it is interrupted.

use std::process::ExitCode;

use isle_client::Result;
use isle_engine::values::{GuestPath, SandboxName};
use isle_engine::{Code, Error};
use serde_json::{Value, json};

use super::Context;
use crate::arguments::WatchArguments;
use crate::output::{Form, escaped, print, say};

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
                say(&format!("watching {} of {sandbox}", escaped(&path.absolute())));
            }
            "file" if context.form == Form::Human => print(&line(&event.data)),
            "overflow" if context.form == Form::Human => {
                say("isle: more happened than is told; look at the files");
            }
            "ended" => {
                return match event.data["error"]["message"].as_str() {
                    None => Ok(ExitCode::SUCCESS),
                    Some(why) => Err(Error::new(Code::WatchEnded, format!("the watch is over: {why}"))
                        .next("watch again when the sandbox is there")
                        .into()),
                };
            }
            _ => {}
        }
    }
    Err(Error::new(Code::DaemonUnavailable, "the daemon ended, and the watch with it")
        .next("watch again")
        .into())
}

fn line(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().map(escaped).unwrap_or_default();
    let slash = if event["directory"] == json!(true) { "/" } else { "" };
    let from = if event["from"].is_null() { String::new() } else { format!("{} -> ", text("from")) };
    format!("{:<8} {from}{}{slash}\n", text("kind"), text("path"))
}
