//! `isle create`, `isle extend`, `isle pause` and `isle resume`: sandboxes with settings of their own, and how long they live.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::run::{one_shot, settings};
use super::{Context, fields};
use crate::arguments::{CreateArguments, ExtendArguments, PauseArguments};
use crate::output::{Form, escaped, print, print_json, show, show_error};

pub(super) async fn create(context: &Context, arguments: CreateArguments) -> Result<ExitCode> {
    let mut settings = settings(context, &arguments.sandbox, None)?;
    if arguments.profile.is_some() {
        // What files say is weaker than a profile, and the daemon reads them by itself.
        settings = settings.of_flags();
    }
    let chosen = one_shot(&settings, &[])?;
    let mut input = json!({
        "sandbox": arguments.name,
        "tier": chosen.tier,
        "image": chosen.image,
        "memory": chosen.memory,
        "cpus": chosen.cpus,
        "pids": chosen.pids,
        "disk": chosen.disk,
        "allow_downgrade": chosen.allow_downgrade,
        "ttl": arguments.ttl,
        "idle": arguments.idle,
        "profile": arguments.profile,
        "allow": arguments.allow,
        "secrets": arguments.secret,
        "expose_secrets": arguments.expose_secret,
    });
    leave_out_nulls(&mut input);
    let answer = context.client().await?.call("create", input).await?;
    show(context.form, &answer, told)
}

pub(super) async fn extend(context: &Context, arguments: ExtendArguments) -> Result<ExitCode> {
    let input = json!({ "sandbox": arguments.name, "by": arguments.by });
    let answer = context.client().await?.call("extend", input).await?;
    show(context.form, &answer, told)
}

/// `isle pause` and `isle resume`. One that fails does not keep the others.
pub(super) async fn pause(context: &Context, arguments: PauseArguments, operation: &str) -> Result<ExitCode> {
    let client = context.client().await?;
    let mut done: Vec<Value> = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for name in arguments.names {
        match client.call(operation, json!({ "sandbox": name })).await {
            Ok(answer) => {
                if context.form == Form::Human {
                    let state = fields::text(&answer, "state").replace('_', " ");
                    print(&format!("{}  {state}\n", escaped(&name)));
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
        print_json(&json!({ "sandboxes": done }));
    }
    Ok(code)
}

fn leave_out_nulls(input: &mut Value) {
    if let Value::Object(map) = input {
        map.retain(|_, value| !value.is_null());
    }
}

/// The name, and how long it lives when that is known.
fn told(answer: &Value) -> String {
    format!("{}\n{}", escaped(&fields::text(answer, "name")), deadlines(answer))
}

/// A line for each deadline of a sandbox.
pub(super) fn deadlines(sandbox: &Value) -> String {
    let line = |name: &str, words: &str| match sandbox[name].as_str() {
        Some(when) => format!("{words} {}\n", escaped(when)),
        None => String::new(),
    };
    line("expires_at", "expires ") + &line("idle_expires_at", "unused, ends")
}
