//! `isle config`: settings with their origins, and the JSON schema of the configuration files.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Map, Value as Json, json};

use super::Context;
use crate::arguments::ConfigArguments;
use crate::config::{KEYS, Key, Scope, Settings, schema};
use crate::output::{Paint, Table, print_json, show};

const MASK: &str = "********";

pub(super) fn config(context: &Context, arguments: ConfigArguments) -> Result<ExitCode> {
    if arguments.schema {
        print_json(&file_schema());
        return Ok(ExitCode::SUCCESS);
    }
    let path_text = |path: &std::path::PathBuf| path.display().to_string();
    let flags = [
        ("state_dir", context.global.state_dir.as_ref().map(path_text)),
        ("socket", context.global.socket.as_ref().map(path_text)),
    ];
    let settings = Settings::for_command(context.global.config.as_ref(), &flags)?;
    let paths = context.paths()?;
    let mut rows = Vec::new();
    for key in KEYS {
        let found = settings.get(key.name);
        let origin = found.map_or_else(|| "default".to_owned(), |(_, origin)| origin.to_string());
        let value = match (found, key.name) {
            (Some(_), _) if key.secret => json!(MASK),
            // The resolved paths; flags and environment may spell them differently.
            (_, "state_dir") => json!(paths.state_dir),
            (_, "runtime_dir") => json!(paths.runtime_dir),
            (_, "socket") => json!(paths.daemon_address().socket),
            (Some((value, _)), _) => value.json(),
            (None, _) => Json::Null,
        };
        rows.push((key, value, origin));
    }
    let object: Map<String, Json> = rows
        .iter()
        .map(|(key, value, origin)| (key.name.to_owned(), json!({ "value": value, "origin": origin })))
        .collect();
    show(context.form, &Json::Object(object), |_| {
        let mut table = Table::new(&["SETTING", "VALUE", "ORIGIN", "DESCRIPTION"]);
        for (key, value, origin) in &rows {
            table.row([key.name.to_owned(), shown(value), origin.clone(), key.help.to_owned()]);
        }
        table.render(Paint::for_stdout())
    })
}

fn shown(value: &Json) -> String {
    match value {
        Json::Null => "-".to_owned(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// JSON schema of `config.toml`, for editors.
fn file_schema() -> Json {
    let properties: Map<String, Json> = KEYS
        .iter()
        .filter(|key| key.scope != Scope::Bootstrap)
        .map(|key| (key.name.to_owned(), property(key)))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Isle settings",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

fn property(key: &Key) -> Json {
    let mut property = schema(key.kind);
    property["description"] = json!(key.help);
    let default = key.default.and_then(|text| crate::config::Value::from_text(key.kind, text).ok());
    if let Some(default) = default {
        property["default"] = default.json();
    }
    property
}
