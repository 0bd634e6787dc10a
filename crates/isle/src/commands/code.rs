//! `isle code`: runs code and prints its output and results.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_api::shapes::{RichKind, RichResult, RunResult};
use isle_client::Result;
use isle_core::{Code, Error};
use serde_json::{Value, json};

use super::Context;
use super::interactive::set_process_options;
use crate::arguments::CodeArguments;
use crate::output::{Form, print, print_json, print_stderr};
use crate::paths::cannot;
use crate::session::report;

/// How long one call waits; the run itself is limited by its timeout.
const WAIT: &str = "300s";
/// Requests all output that was kept.
const OUTPUT: &str = "16M";

pub(super) async fn code(context: &Context, arguments: CodeArguments) -> Result<ExitCode> {
    let code = match arguments.code {
        Some(code) => code,
        None => read_stdin()?,
    };
    let mut input = json!({
        "sandbox": arguments.name,
        "code": code,
        "wait": WAIT,
        "output_limit": OUTPUT,
    });
    for (name, value) in
        [("context", arguments.context), ("language", arguments.lang), ("timeout", arguments.timeout)]
    {
        if let Some(value) = value {
            input[name] = Value::String(value);
        }
    }
    set_process_options(&mut input, arguments.process)?;
    let client = context.client().await?;
    let mut answer = client.call("run_code", input).await?;
    while answer["state"] == "running" {
        answer = client.call("wait", json!({ "run_id": answer["run_id"], "timeout": WAIT })).await?;
    }
    if let Some(directory) = &arguments.pictures {
        write_pictures(directory, &mut answer)?;
    }
    let result: RunResult = serde_json::from_value(answer.clone()).map_err(Error::internal)?;
    match context.form {
        Form::Json => print_json(&answer),
        Form::Human => show(&result),
    }
    Ok(report(&result, context.form))
}

fn read_stdin() -> Result<String> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| cannot("read", Path::new("standard input"), &error))?;
    if text.trim().is_empty() {
        return Err(Error::new(Code::InvalidArgument, "no code to run")
            .next("pass the code as a quoted argument or on standard input")
            .into());
    }
    Ok(text)
}

/// Prints stdout and stderr, then the results.
fn show(result: &RunResult) {
    print(&result.stdout);
    if !result.stderr.is_empty() {
        print_stderr(result.stderr.trim_end_matches('\n'));
    }
    for one in &result.results {
        print(&shown(one));
    }
}

fn shown(result: &RichResult) -> String {
    let text = result.text.clone().unwrap_or_default();
    let picture = result.png.as_ref().or(result.jpeg.as_ref());
    match (result.kind, picture) {
        (RichKind::Figure, Some(picture)) => format!("[figure: {}]\n", location(picture)),
        (_, Some(picture)) => format!("{text} [image: {}]\n", location(picture)),
        (_, None) => format!("{text}\n"),
    }
}

/// The file of an image, or its size when it was not written to a file.
fn location(picture: &str) -> String {
    match picture.strip_prefix("file:") {
        Some(path) => path.to_owned(),
        None => format!("{} bytes; use --pictures DIR to save it", picture.len() * 3 / 4),
    }
}

/// Writes every image to a file and replaces its data by the file name.
fn write_pictures(directory: &Path, answer: &mut Value) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|error| cannot("create", directory, &error))?;
    let mut number = 0;
    let results = answer.get_mut("results").and_then(Value::as_array_mut);
    for result in results.into_iter().flatten() {
        for form in ["png", "jpeg"] {
            let Some(data) = result.get(form).and_then(Value::as_str) else { continue };
            let bytes = STANDARD.decode(data).map_err(Error::internal)?;
            number += 1;
            let path = directory.join(format!("picture-{number}.{form}"));
            std::fs::write(&path, bytes).map_err(|error| cannot("write", &path, &error))?;
            result[form] = Value::String(format!("file:{}", path.display()));
        }
    }
    Ok(())
}
