//! From an operation's name and input to the request the registry defines for it.

use isle_api::{Method, Route};
use isle_core::{Code, Error};
use serde_json::{Map, Value};

use crate::error::Result;

/// A request as the route wants it.
#[derive(Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) method: hyper::Method,
    /// Path and query, below the root of the server.
    pub(crate) path: String,
    /// JSON body; `None` where arguments travel in the query.
    pub(crate) body: Option<Value>,
}

/// Fills the `{parts}` of the path from the input; the rest goes to the query or the body.
pub(crate) fn plan(operation: &str, route: Route, input: Value) -> Result<Planned> {
    let mut fields = match input {
        Value::Null => Map::new(),
        Value::Object(fields) => fields,
        other => {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("{operation}: the input is not an object: {other}"),
            )
            .next("write the arguments as a JSON object, such as '{\"sandbox\": \"default\"}'")
            .into());
        }
    };
    let mut path = String::from("/v1");
    for part in route.path.split('/').filter(|part| !part.is_empty()) {
        path.push('/');
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            None => path.push_str(part),
            Some(field) => {
                let value = fields.remove(field).filter(|value| !value.is_null());
                // A sandbox has a name that is used when a call names none; paths cannot be empty.
                let value = match value {
                    Some(value) => value,
                    None if field == "sandbox" => Value::from("default"),
                    None => {
                        return Err(Error::new(
                            Code::InvalidArgument,
                            format!("{operation}: `{field}` is missing"),
                        )
                        .next(format!("`isle call {operation} --help` lists the arguments"))
                        .into());
                    }
                };
                path.push_str(&encode(&plain(&value)));
            }
        }
    }
    let (method, in_query) = match route.method {
        Method::Get => (hyper::Method::GET, true),
        Method::Post => (hyper::Method::POST, false),
        Method::Delete => (hyper::Method::DELETE, false),
    };
    if !in_query {
        return Ok(Planned { method, path, body: Some(Value::Object(fields)) });
    }
    let query: Vec<String> = fields
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| format!("{}={}", encode(name), encode(&plain(value))))
        .collect();
    if !query.is_empty() {
        path.push('?');
        path.push_str(&query.join("&"));
    }
    Ok(Planned { method, path, body: None })
}

/// A value as it stands in a path or query: text without quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Percent-encodes everything but unreserved characters.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILES: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/files" };
    const EXEC: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/exec" };

    #[test]
    fn arguments_of_a_read_travel_in_path_and_query() {
        let planned =
            plan("list_files", FILES, json!({"sandbox": "a", "path": "x y/ä", "deep": true, "no": null}));
        let planned = planned.unwrap();
        assert_eq!(planned.path, "/v1/sandboxes/a/files?deep=true&path=x%20y%2F%C3%A4");
        assert_eq!(planned.body, None);
    }

    #[test]
    fn arguments_of_a_deed_travel_in_path_and_body() {
        let planned = plan("exec", EXEC, json!({"command": "true"})).unwrap();
        assert_eq!(planned.path, "/v1/sandboxes/default/exec");
        assert_eq!(planned.body, Some(json!({"command": "true"})));
    }

    #[test]
    fn arguments_of_a_removal_travel_in_the_body_too() {
        let route = Route { method: Method::Delete, path: "/sandboxes/{sandbox}" };
        let planned = plan("destroy", route, json!({"sandbox": "a", "wipe": true})).unwrap();
        assert_eq!((planned.path.as_str(), planned.body), ("/v1/sandboxes/a", Some(json!({"wipe": true}))));
    }

    #[test]
    fn a_name_cannot_leave_its_part_of_the_path() {
        let planned = plan("exec", EXEC, json!({"sandbox": "../runs"})).unwrap();
        assert_eq!(planned.path, "/v1/sandboxes/..%2Fruns/exec");
    }

    #[test]
    fn a_missing_part_of_the_path_is_refused() {
        let route = Route { method: Method::Get, path: "/runs/{run_id}" };
        assert_eq!(plan("wait", route, json!({})).unwrap_err().code, "INVALID_ARGUMENT");
    }
}
