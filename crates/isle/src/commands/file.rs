//! `isle file`: lists, prints, searches and changes single files of a sandbox.

use std::process::ExitCode;

use isle_client::{Client, Result};
use isle_core::{Code, Error};
use serde_json::{Value, json};

use super::{Context, fields};
use crate::arguments::{FileArguments, FileCommand};
use crate::output::{Form, Paint, Table, escaped, print, print_json, print_stderr, show};

pub(super) async fn file(context: &Context, arguments: FileArguments) -> Result<ExitCode> {
    let (operation, input, human): (&str, Value, fn(&Value) -> String) = match arguments.command {
        FileCommand::Cat { name, path, lines } => {
            return cat(context, &name, &path, lines.as_deref()).await;
        }
        FileCommand::Ls { name, path, depth, glob, limit } => {
            let input =
                json!({ "sandbox": name, "path": path, "depth": depth, "glob": glob, "limit": limit });
            ("list_files", input, listing)
        }
        FileCommand::Grep { name, pattern, path, literal, ignore_case, glob, context, limit } => {
            let input = json!({
                "sandbox": name, "pattern": pattern, "path": path, "literal": literal,
                "ignore_case": ignore_case, "glob": glob, "context": context, "limit": limit,
            });
            ("search_files", input, matches)
        }
        FileCommand::Edit { name, path, old, new, all } => {
            let edit = json!({ "old": old, "new": new, "replace_all": all });
            ("edit_file", json!({ "sandbox": name, "path": path, "edits": [edit] }), replaced)
        }
        FileCommand::Mv { name, from, to, force } => {
            let input = json!({ "sandbox": name, "from": from, "to": to, "replace": force });
            ("move_file", input, |answer| fields::text(answer, "to") + "\n")
        }
        FileCommand::Rm { name, path, recursive } => {
            let input = json!({ "sandbox": name, "path": path, "recursive": recursive });
            ("remove_file", input, |answer| fields::text(answer, "removed") + "\n")
        }
        FileCommand::Stat { name, path } => ("stat_file", json!({ "sandbox": name, "path": path }), facts),
        FileCommand::Clone { name, url, path, branch, depth, token_from, username, allow } => {
            let input = json!({
                "sandbox": name, "url": url, "path": path, "branch": branch, "depth": depth,
                "token": token_from.as_deref().map(token).transpose()?, "username": username, "allow": allow,
            });
            ("git_clone", input, cloned)
        }
    };
    let answer = context.client().await?.call(operation, without_nulls(input)).await?;
    let nothing_found = operation == "search_files" && fields::list(&answer, "matches").is_empty();
    let shown = show(context.form, &answer, human)?;
    // As with grep, the exit code is 1 when nothing matched.
    Ok(if nothing_found { ExitCode::FAILURE } else { shown })
}

/// Removes options that were not given, so that the operation applies its defaults.
fn without_nulls(mut input: Value) -> Value {
    if let Value::Object(map) = &mut input {
        map.retain(|_, value| !value.is_null());
    }
    input
}

/// A token is never passed on the command line, where other users could read it.
fn token(variable: &str) -> Result<String> {
    std::env::var(variable).map_err(|_| {
        Error::new(
            Code::InvalidArgument,
            format!("environment variable {variable:?} is not set or not UTF-8"),
        )
        .next("export the token in this variable, or pass another with --token-from")
        .into()
    })
}

/// Prints all pages, unescaped, since the output may be redirected to a file.
async fn cat(context: &Context, name: &str, path: &str, lines: Option<&str>) -> Result<ExitCode> {
    let client = context.client().await?;
    let (mut offset, mut lines) = (None, lines.map(str::to_owned));
    loop {
        let page = read(&client, name, path, lines.as_deref(), offset).await?;
        if context.form == Form::Json {
            print_json(&page);
            return Ok(ExitCode::SUCCESS);
        }
        print(page["content"].as_str().unwrap_or_default());
        offset = page["next_offset"].as_u64();
        if let Some(range) = &lines {
            lines = lines_left(range, &page);
            offset = offset.filter(|_| lines.is_some());
        }
        if offset.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
        offset = offset.filter(|_| lines.is_none());
    }
}

/// The range of requested lines that remains after a full page.
fn lines_left(range: &str, page: &Value) -> Option<String> {
    let read = page["content"].as_str().unwrap_or_default().lines().count() as u64;
    let next = page["first_line"].as_u64()? + read;
    let last = range.split_once('-').map_or(range, |(_, last)| last);
    let is_left = read > 0 && last.parse::<u64>().map_or(last.is_empty(), |last| next <= last);
    is_left.then(|| format!("{next}-{last}"))
}

async fn read(
    client: &Client,
    name: &str,
    path: &str,
    lines: Option<&str>,
    offset: Option<u64>,
) -> Result<Value> {
    let input = json!({
        "sandbox": name, "path": path, "lines": lines, "offset": offset, "encoding": "utf8",
    });
    client.call("read_file", without_nulls(input)).await
}

fn listing(answer: &Value) -> String {
    let mut table = Table::new(&["MODE", "SIZE", "MODIFIED", "PATH"]);
    for entry in fields::list(answer, "entries") {
        let mut path = fields::text(entry, "path");
        match entry["kind"].as_str() {
            Some("directory") => path.push('/'),
            Some("symlink") => path = format!("{path} -> {}", fields::text(entry, "target")),
            _ => {}
        }
        table.row([
            fields::text(entry, "mode"),
            fields::bytes(entry, "size"),
            fields::text(entry, "modified"),
            path,
        ]);
    }
    if table.is_empty() {
        return "No entries.\n".to_owned();
    }
    let more = if answer["truncated"] == true { "Truncated; use --limit to show more.\n" } else { "" };
    table.render(Paint::for_stdout()) + more
}

/// `path:line:column: text`, as compilers print it.
fn matches(answer: &Value) -> String {
    let mut shown = String::new();
    let texts = |found: &Value, name: &str| -> Vec<String> {
        fields::list(found, name).iter().filter_map(|line| line.as_str().map(escaped)).collect()
    };
    for found in fields::list(answer, "matches") {
        let path = escaped(&fields::text(found, "path"));
        let line = found["line"].as_u64().unwrap_or(0);
        let before = texts(found, "before");
        let first = line.saturating_sub(before.len() as u64);
        for (number, text) in (first..).zip(&before) {
            shown += &format!("{path}-{number}- {text}\n");
        }
        let column = fields::text(found, "column");
        shown += &format!("{path}:{line}:{column}: {}\n", escaped(&fields::text(found, "text")));
        for (number, text) in (line + 1..).zip(texts(found, "after")) {
            shown += &format!("{path}-{number}- {text}\n");
        }
    }
    if answer["truncated"] == true {
        print_stderr(&format!(
            "isle: results truncated (limit reached: {})",
            fields::text(answer, "stopped_by")
        ));
    }
    shown
}

fn replaced(answer: &Value) -> String {
    let count: u64 = fields::list(answer, "replaced").iter().filter_map(Value::as_u64).sum();
    format!("{}: {count} replaced\n", escaped(&fields::text(answer, "path")))
}

fn facts(answer: &Value) -> String {
    let Value::Object(map) = answer else { return String::new() };
    map.keys()
        .fold(String::new(), |all, name| all + &format!("{name}: {}\n", escaped(&fields::text(answer, name))))
}

fn cloned(answer: &Value) -> String {
    let commit = match &answer["commit"] {
        Value::Null => "no commit yet".to_owned(),
        commit => {
            let id: String = fields::text(commit, "id").chars().take(12).collect();
            format!("{id} {}", escaped(&fields::text(commit, "subject")))
        }
    };
    format!("{}: {} files, {commit}\n", escaped(&fields::text(answer, "path")), fields::text(answer, "files"))
}
