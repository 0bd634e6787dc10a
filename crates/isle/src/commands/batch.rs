//! `isle batch`: several commands in a named sandbox, in order, as one run.

use std::process::ExitCode;

use isle_api::shapes::{CommandRecord, CommandState, RunResult};
use isle_client::{Client, Result};
use serde_json::{Value, json};

use super::{Context, interactive};
use crate::arguments::BatchArguments;
use crate::output::{Colour, Form, Paint, escaped, human_millis, print, print_json, print_stderr};
use crate::session::report;

/// How long one call waits; further calls continue waiting.
const ONE_CALL: &str = "45s";

pub(super) async fn batch(context: &Context, arguments: BatchArguments) -> Result<ExitCode> {
    let commands: Vec<Value> = arguments
        .lines
        .iter()
        .map(|line| match line.strip_prefix('-') {
            Some(rest) => json!({ "command": rest, "allow_failure": true }),
            None => json!({ "command": line }),
        })
        .collect();
    let mut input = json!({
        "sandbox": arguments.name,
        "commands": commands,
        "continue_on_error": arguments.keep_going,
        "lock": arguments.lock,
        "wait": ONE_CALL,
    });
    interactive::set_process_options(&mut input, arguments.process)?;
    if let Some(timeout) = arguments.timeout {
        input["timeout"] = json!(timeout);
    }
    let client = context.client().await?;
    let mut result: RunResult = client.call_as("run_commands", input).await?;
    while !result.state.is_final() {
        let again = json!({ "run_id": result.run_id, "timeout": ONE_CALL });
        result = client.call_as("wait", again).await?;
    }
    match context.form {
        Form::Json => print_json(&json!(result)),
        Form::Human => {
            for record in &result.commands {
                show(&client, &result, record).await?;
            }
        }
    }
    Ok(report(&result, context.form))
}

/// Prints a command, its output and its exit status.
async fn show(client: &Client, result: &RunResult, record: &CommandRecord) -> Result<()> {
    let paint = Paint::for_stderr();
    let line = record.command.lines().next().unwrap_or_default();
    let (colour, status) = match record.state {
        CommandState::Completed => (Colour::Green, "done".to_owned()),
        CommandState::Failed | CommandState::Killed => {
            let allowed = if record.allow_failure { ", allowed" } else { "" };
            let how = match (record.exit_code, record.signal) {
                (Some(code), _) => format!("exited with {code}"),
                (None, Some(signal)) => format!("killed by signal {signal}"),
                (None, None) => "failed".to_owned(),
            };
            (Colour::Red, format!("{how}{allowed}"))
        }
        CommandState::NotRun => (Colour::Yellow, "not run".to_owned()),
        CommandState::Waiting | CommandState::Running | CommandState::Lost => {
            (Colour::Yellow, "exit status unknown".to_owned())
        }
    };
    print_stderr(&format!("{} {}", paint.bold(Colour::Cyan, "+"), escaped(line)));
    for (stream, offset, bytes) in [
        ("stdout", record.stdout_offset, record.stdout_bytes),
        ("stderr", record.stderr_offset, record.stderr_bytes),
    ] {
        part(client, result, stream, offset, bytes).await?;
    }
    let took = human_millis(record.duration_ms);
    print_stderr(&format!("{} ({took})", paint.bold(colour, &status)));
    Ok(())
}

/// Prints a range of an output, page by page.
async fn part(client: &Client, result: &RunResult, stream: &str, offset: u64, bytes: u64) -> Result<()> {
    let (mut at, end) = (offset, offset + bytes);
    while at < end {
        let input = json!({ "run_id": result.run_id, "stream": stream, "offset": at, "limit": end - at });
        let answer = client.call("logs", input).await?;
        let page = &answer[stream];
        if let Some(lost) = page["lost_bytes"].as_u64() {
            print_stderr(&format!("isle: {lost} bytes of output were dropped here"));
        }
        let start = page["offset"].as_u64().unwrap_or(end);
        if start < end {
            print(page["text"].as_str().unwrap_or_default());
        }
        let next = page["next_offset"].as_u64().unwrap_or(end);
        if next <= at {
            break;
        }
        at = next;
    }
    Ok(())
}
