//! Fields of an answer, for tables. Text for people may lack a field a program would insist on.

use serde_json::Value;

use crate::output::{human_bytes, human_millis};

/// A field as text; `-` when there is none.
pub(super) fn text(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A number of bytes.
pub(super) fn bytes(value: &Value, name: &str) -> String {
    value[name].as_u64().map_or_else(|| "-".to_owned(), human_bytes)
}

/// A number of milliseconds.
pub(super) fn millis(value: &Value, name: &str) -> String {
    value[name].as_u64().map_or_else(|| "-".to_owned(), human_millis)
}

/// A list; empty when there is none.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}
