//! `isle bridge`: copies JSON into a sandbox.

use std::process::ExitCode;

use isle_client::Result;
use isle_core::strict_json;
use serde_json::{Map, Value, json};

use super::{Context, fields};
use crate::arguments::BridgeArguments;
use crate::output::show;

pub(super) async fn bridge(context: &Context, arguments: BridgeArguments) -> Result<ExitCode> {
    let BridgeArguments { name, value, called, from, file, variable, context: source, to_context } =
        arguments;
    let mut input = Map::from_iter([("sandbox".to_owned(), json!(name))]);
    if let Some(text) = value {
        input.insert("value".to_owned(), strict_json::parse(text.as_bytes())?);
    }
    let rest = [
        ("name", called),
        ("from", from),
        ("file", file),
        ("variable", variable),
        ("context", source),
        ("to_context", to_context),
    ];
    input.extend(rest.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))));
    let answer = context.client().await?.call("bridge", Value::Object(input)).await?;
    show(context.form, &answer, |answer| format!("{}\n", fields::text(answer, "path")))
}
