//! `isle create`, `isle extend`, `isle pause` and `isle resume`.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::interactive::environment;
use super::run::{one_shot, settings};
use super::{Context, fields};
use crate::arguments::{CreateArguments, ExtendArguments, PauseArguments};
use crate::output::{Form, escaped, print, print_json, show, show_error};

pub(super) async fn create(context: &Context, arguments: CreateArguments) -> Result<ExitCode> {
    let mut settings = settings(context, &arguments.sandbox, None)?;
    if arguments.profile.is_some() {
        // A profile overrides configuration files, which the daemon reads itself: send only flags.
        settings = settings.of_flags();
    }
    let chosen = one_shot(&settings, &arguments.file)?;
    let files = chosen.files.iter();
    let files: Vec<Value> = files
        .map(|file| json!({ "path": file.path, "content": file.content_base64, "encoding": "base64" }))
        .collect();
    let mut input = json!({
        "sandbox": arguments.name,
        "tier": chosen.tier,
        "backend": chosen.backend,
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
        "files": files,
        "env": environment(&arguments.env)?,
    });
    remove_nulls(&mut input);
    let answer = context.client().await?.call("create", input).await?;
    show(context.form, &answer, summary)
}

pub(super) async fn extend(context: &Context, arguments: ExtendArguments) -> Result<ExitCode> {
    let input = json!({ "sandbox": arguments.name, "by": arguments.by });
    let answer = context.client().await?.call("extend", input).await?;
    show(context.form, &answer, summary)
}

/// `isle pause` and `isle resume`; an error does not stop the others.
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

fn remove_nulls(input: &mut Value) {
    if let Value::Object(map) = input {
        map.retain(|_, value| !value.is_null());
    }
}

/// The name and the deadlines.
fn summary(answer: &Value) -> String {
    format!("{}\n{}", escaped(&fields::text(answer, "name")), deadlines(answer))
}

/// One line per deadline of a sandbox.
pub(super) fn deadlines(sandbox: &Value) -> String {
    let line = |name: &str, label: &str| match sandbox[name].as_str() {
        Some(when) => format!("{label} {}\n", escaped(when)),
        None => String::new(),
    };
    line("expires_at", "expires at") + &line("idle_expires_at", "expires if idle at")
}
