//! Arguments several operations share, tolerant where clients are known to be sloppy and the
//! meaning is still clear.

use std::collections::BTreeMap;

use isle_core::values::reading::refuse;
use isle_core::values::{GuestPath, SandboxName};
use isle_core::{Code, Error, Result};
use isle_wire::GuestUser;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

// No doc comment on purpose: it would be repeated in every tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum User {
    /// uid 1000, no rights beyond its own files.
    #[default]
    Sandbox,
    /// uid 0, inside the sandbox only.
    Root,
}

impl From<User> for GuestUser {
    fn from(user: User) -> Self {
        match user {
            User::Sandbox => Self::Sandbox,
            User::Root => Self::Root,
        }
    }
}

// No doc comment on purpose: it would be repeated in every tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum GitDirectories {
    /// Left out and named in the answer.
    #[default]
    Skip,
    /// Copied with everything git would run.
    Copy,
}

/// Environment: an object, or a list of `NAME=value`.
#[derive(Debug, Clone, Default)]
pub struct Environment(pub Vec<(String, String)>);

impl JsonSchema for Environment {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Environment".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "additionalProperties": { "type": "string" } })
    }
}

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        read_environment(Value::deserialize(deserializer)?).map(Self).map_err(refuse)
    }
}

fn read_environment(value: Value) -> Result<Vec<(String, String)>> {
    let wrong = |what: &str| {
        Error::new(Code::InvalidArgument, format!("env: {what}"))
            .next("give an object such as {\"NAME\": \"value\"}, or a list of \"NAME=value\"")
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(map) => map
            .into_iter()
            .map(|(name, value)| match value {
                Value::String(text) => Ok((name, text)),
                Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    Err(wrong(&format!("the value of {name:?} is not a text")))
                }
            })
            .collect(),
        Value::Array(list) => list
            .into_iter()
            .map(|entry| {
                let text = entry.as_str().ok_or_else(|| wrong("an entry of the list is not a text"))?;
                let (name, value) =
                    text.split_once('=').ok_or_else(|| wrong(&format!("{text:?} has no `=`")))?;
                Ok((name.to_owned(), value.to_owned()))
            })
            .collect(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(wrong("it is neither an object nor a list"))
        }
    }
}

/// Reads `argv`. A text is refused with words of its own, because it is almost right.
pub fn argv<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Vec<String>>, D::Error> {
    let wrong = |what: &str| {
        refuse(
            Error::new(Code::InvalidArgument, format!("argv {what}"))
                .next("give argv as a list such as [\"ls\", \"-l\"], or shell text as command"),
        )
    };
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::Array(words) => words
            .into_iter()
            .map(|word| match word {
                Value::String(text) => Ok(text),
                Value::Number(number) => Ok(number.to_string()),
                _ => Err(wrong("holds something that is not a text")),
            })
            .collect::<std::result::Result<Vec<_>, _>>()
            .map(Some),
        _ => Err(wrong("is not a list")),
    }
}

/// The sandbox an operation means when it names none.
pub fn sandbox_or_default(name: Option<SandboxName>) -> SandboxName {
    name.unwrap_or_else(SandboxName::default_sandbox)
}

/// Files as a list of objects, an object of path to content, or either as JSON text.
pub fn files<'de, D, T>(deserializer: D) -> std::result::Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: for<'any> Deserialize<'any> + From<(GuestPath, String)>,
{
    let value = Value::deserialize(deserializer)?;
    read_files(value).map_err(refuse)
}

fn read_files<T>(value: Value) -> Result<Vec<T>>
where
    T: for<'any> Deserialize<'any> + From<(GuestPath, String)>,
{
    let wrong = |what: String| {
        Error::new(Code::InvalidArgument, format!("files: {what}"))
            .next("give a list such as [{\"path\": \"a.txt\", \"content\": \"…\"}]")
    };
    match value {
        Value::String(text) => match isle_core::strict_json::parse(text.as_bytes()) {
            Ok(inside @ (Value::Array(_) | Value::Object(_))) => read_files(inside),
            Ok(_) => Err(wrong("the text is not a JSON list or object".into())),
            Err(error) => Err(wrong(error.message)),
        },
        Value::Object(map) => {
            let map: BTreeMap<String, Value> = map.into_iter().collect();
            map.into_iter()
                .map(|(path, content)| match content {
                    Value::String(text) => Ok(T::from((path.parse()?, text))),
                    _ => Err(wrong(format!("the content of {path:?} is not a text"))),
                })
                .collect()
        }
        Value::Array(list) => list
            .into_iter()
            .map(|file| {
                serde_json::from_value(file).map_err(|error| {
                    isle_core::values::reading::take_refused()
                        .filter(|refused| error.to_string().contains(&refused.message))
                        .unwrap_or_else(|| wrong(error.to_string()))
                })
            })
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Err(wrong("it is not a list".into())),
    }
}

/// Patterns of files that stay out.
pub fn patterns(given: Option<Vec<String>>) -> Result<Vec<String>> {
    const MOST: usize = 1000;
    let given = given.unwrap_or_default();
    if given.len() > MOST {
        return Err(Error::new(Code::InvalidArgument, format!("exclude holds {} patterns", given.len()))
            .next(format!("give at most {MOST}, or put them into a .gitignore file")));
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn environments_come_as_objects_or_lists() {
        let pairs = |value| read_environment(value).unwrap();
        assert_eq!(pairs(json!({"A": "x", "B": 1})), [("A".into(), "x".into()), ("B".into(), "1".into())]);
        assert_eq!(pairs(json!(["A=x=y"])), [("A".into(), "x=y".into())]);
        assert!(read_environment(json!(["A"])).is_err());
        assert!(read_environment(json!({"A": {}})).is_err());
        assert!(read_environment(json!("A=1")).is_err());
    }
}
