//! `isle job`: background jobs. `isle logs`, `isle wait` and `isle kill` work on jobs as on every run.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_client::{Client, Result};
use isle_core::{Code, Error};
use serde_json::{Value, json};

use super::{Context, fields, interactive};
use crate::arguments::{
    JobArguments, JobCommand, JobListArguments, JobStartArguments, JobStopArguments, JobWriteArguments,
};
use crate::output::{Form, Paint, Table, print, print_json, print_stderr, show, show_error};
use crate::paths::cannot;

/// Bytes sent in one call.
const PIECE: usize = 256 * 1024;

pub(super) async fn job(context: &Context, arguments: JobArguments) -> Result<ExitCode> {
    match arguments.what {
        JobCommand::Start(arguments) => start(context, arguments).await,
        JobCommand::Ls(arguments) => list(context, arguments).await,
        JobCommand::Write(arguments) => write(context, arguments).await,
        JobCommand::Stop(arguments) => stop(context, arguments).await,
    }
}

async fn start(context: &Context, arguments: JobStartArguments) -> Result<ExitCode> {
    let mut input = json!({
        "sandbox": arguments.sandbox,
        "argv": arguments.command,
        "pty": arguments.tty,
        "input": arguments.input,
        "lock": arguments.lock,
    });
    interactive::set_process_options(&mut input, arguments.process)?;
    for (name, value) in [("name", arguments.name), ("timeout", arguments.timeout)] {
        if let Some(value) = value {
            input[name] = json!(value);
        }
    }
    let answer = context.client().await?.call("start_job", input).await?;
    show(context.form, &answer, |answer| format!("{}\n", fields::text(answer, "job")))
}

async fn list(context: &Context, arguments: JobListArguments) -> Result<ExitCode> {
    let mut input = json!({ "limit": arguments.limit });
    if let Some(sandbox) = arguments.sandbox {
        input["sandbox"] = json!(sandbox);
    }
    let answer = context.client().await?.call("list_jobs", input).await?;
    show(context.form, &answer, |answer| {
        let mut table = Table::new(&["JOB", "STATE", "EXIT", "STARTED", "TOOK", "COMMAND"]);
        for job in fields::list(answer, "jobs") {
            table.row([
                fields::text(job, "job"),
                fields::text(job, "state"),
                fields::text(job, "exit_code"),
                fields::text(job, "started_at"),
                fields::millis(job, "duration_ms"),
                fields::text(job, "command").lines().next().unwrap_or_default().chars().take(60).collect(),
            ]);
        }
        if table.is_empty() {
            return "No jobs. Start one with `isle job start SANDBOX -- COMMAND`.\n".to_owned();
        }
        table.render(Paint::for_stdout())
    })
}

async fn write(context: &Context, arguments: JobWriteArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    let bytes = match (arguments.line, arguments.eof) {
        (Some(line), _) => format!("{line}\n").into_bytes(),
        (None, true) => Vec::new(),
        (None, false) => {
            let mut bytes = Vec::new();
            std::io::stdin()
                .read_to_end(&mut bytes)
                .map_err(|error| cannot("read", Path::new("standard input"), &error))?;
            bytes
        }
    };
    let answer = write_all(&client, &arguments.job, &bytes, arguments.eof).await?;
    show(context.form, &answer, |_| String::new())
}

/// Writes all bytes; fails with the number of bytes read when the job does not read them in time.
async fn write_all(client: &Client, job: &str, bytes: &[u8], eof: bool) -> Result<Value> {
    let mut at = 0;
    loop {
        let end = bytes.len().min(at + PIECE);
        let last = end == bytes.len();
        let input = json!({
            "run_id": job, "base64": STANDARD.encode(&bytes[at..end]), "eof": eof && last,
        });
        let answer = client.call("write_job", input).await?;
        if answer["unread_bytes"] != json!(0) {
            let taken = at as u64 + answer["written_bytes"].as_u64().unwrap_or(0);
            let message = format!("timed out: the job read {taken} of {} bytes", bytes.len());
            return Err(Error::new(Code::Busy, message)
                .detail("written_bytes", taken)
                .next("write the remaining bytes when the job reads its input again")
                .into());
        }
        if last {
            return Ok(answer);
        }
        at = end;
    }
}

async fn stop(context: &Context, arguments: JobStopArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    let mut answers: Vec<Value> = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for job in &arguments.jobs {
        let input = json!({ "run_id": job, "force": arguments.force });
        match client.call("kill", input).await {
            Ok(answer) => {
                if context.form == Form::Human {
                    print_stderr(&format!("isle: stopped {job}; last lines of output:"));
                    print(answer["last_output"].as_str().unwrap_or_default());
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
