//! `isle validate`: checks a source file. Exits with 1 when the code is rejected.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use isle_client::Result;
use isle_core::{Code, Error};
use serde_json::{Value, json};

use super::{Context, fields};
use crate::arguments::ValidateArguments;
use crate::output::{Form, escaped, print, print_json};
use crate::paths::cannot;

pub(super) async fn validate(context: &Context, arguments: ValidateArguments) -> Result<ExitCode> {
    let code = read(&arguments.file)?;
    let mut input = json!({
        "sandbox": arguments.sandbox,
        "code": code,
        "fix": !arguments.no_fix,
        "reject_findings": arguments.reject_findings,
        "ignore": arguments.ignore,
    });
    let ending = arguments.file.extension().and_then(|ending| ending.to_str());
    let by_ending = match ending {
        Some("py") => Some("python"),
        Some("js" | "mjs" | "cjs") => Some("node"),
        Some("sh" | "bash") => Some("shell"),
        _ => None,
    };
    if let Some(language) = arguments.lang.or_else(|| by_ending.map(str::to_owned)) {
        input["language"] = Value::String(language);
    }
    let answer = context.client().await?.call("validate", input).await?;
    match (context.form, arguments.show) {
        (Form::Json, _) => print_json(&answer),
        (Form::Human, true) => print(answer["code"].as_str().unwrap_or(&code)),
        (Form::Human, false) => print(&shown(&arguments.file, &answer)),
    }
    Ok(if answer["verdict"] == "reject" { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read(file: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(file).map(|all| bytes = all)
    };
    read.map_err(|error| cannot("read", file, &error))?;
    String::from_utf8(bytes).map_err(|_| {
        Error::new(Code::InvalidArgument, format!("{} is not UTF-8 text", file.display()))
            .next("convert it to UTF-8")
            .into()
    })
}

/// One line per finding, as compilers print them.
fn shown(file: &Path, answer: &Value) -> String {
    let file = escaped(&file.display().to_string());
    let mut lines = Vec::new();
    for error in fields::list(answer, "errors") {
        let place = format!("{file}:{}:{}", error["line"], error["column"]);
        lines.push(format!("{place}: error: {}", escaped(&fields::text(error, "message"))));
    }
    for finding in fields::list(answer, "findings") {
        let place = format!("{file}:{}:{}", finding["line"], finding["column"]);
        let name = fields::text(finding, "name");
        lines.push(format!("{place}: {name}: {}", escaped(&fields::text(finding, "message"))));
    }
    for fix in fields::list(answer, "fixes") {
        lines.push(format!("{file}:{}: fix: {}", fix["line"], escaped(&fields::text(fix, "message"))));
    }
    let hosts: Vec<String> =
        fields::list(answer, "domains").iter().filter_map(|host| host.as_str().map(escaped)).collect();
    if !hosts.is_empty() {
        lines.push(format!("{file}: host names: {}", hosts.join(", ")));
    }
    for note in fields::list(answer, "notes") {
        lines.push(format!("{file}: {}", escaped(note.as_str().unwrap_or_default())));
    }
    let shown = if answer["fixes"].as_array().is_some_and(|fixes| !fixes.is_empty()) {
        "; use --show to print the code with the fixes applied"
    } else {
        ""
    };
    lines.push(format!("{} {}{shown}", fields::text(answer, "verdict"), fields::text(answer, "language")));
    lines.join("\n") + "\n"
}
