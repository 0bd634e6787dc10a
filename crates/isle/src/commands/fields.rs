//! Fields of a JSON result, for tables. A missing field is shown as `-`.

use isle_client::{Client, Result};
use serde_json::{Value, json};

use crate::output::{human_bytes, human_millis};

/// Calls a list operation page by page until there are `limit` entries or no more. A page may be short, since
/// the daemon examines a bounded number of records per call.
pub(super) async fn pages(
    client: &Client,
    operation: &str,
    mut input: Value,
    list: &str,
    limit: u32,
) -> Result<Value> {
    let mut answer = client.call(operation, input.clone()).await?;
    loop {
        let have = answer[list].as_array().map_or(0, Vec::len);
        let missing = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(have);
        if missing == 0 || answer["before"].is_null() {
            return Ok(answer);
        }
        input["before"] = answer["before"].take();
        input["limit"] = json!(missing);
        let mut page = client.call(operation, input.clone()).await?;
        answer["before"] = page["before"].take();
        if let (Some(all), Some(more)) = (answer[list].as_array_mut(), page[list].as_array_mut()) {
            all.append(more);
        }
    }
}

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
