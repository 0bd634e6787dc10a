//! Arguments several operations share, tolerant where clients are known to be sloppy and the
//! meaning is still clear.

use std::collections::BTreeMap;

use bytes::Bytes;
use isle_egress::Grant;
use isle_wire::GuestUser;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::context::CallContext;
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::ops::shapes::RunResult;
use crate::run::{Asked, Input, OnCancel, Patience, Place, Plan, Program, RunKind, RunLimits, answer_budget};
use crate::values::reading::refuse;
use crate::values::{ByteSize, GuestPath, SandboxName, Span};
use crate::vault::Wishes;

// No doc comment on purpose: it would be repeated in every tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum User {
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

/// Environment: an object, or a list of `NAME=value`.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment(pub(super) Vec<(String, String)>);

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
pub(super) fn argv<'de, D: Deserializer<'de>>(
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

/// Exactly one of the two forms of a command.
pub(super) fn program(command: Option<String>, argv: Option<Vec<String>>) -> Result<Program> {
    let refuse = |what: &str| {
        Err(Error::new(Code::InvalidArgument, what)
            .next("give either command (shell text) or argv (a list), such as command: \"ls -l\""))
    };
    // Some clients send every argument they know of; empty ones then mean nothing.
    let argv = argv.filter(|words| !words.is_empty());
    let command = command.filter(|text| argv.is_none() || !text.is_empty());
    match (command, argv) {
        (Some(text), None) => Ok(Program::Shell(text)),
        (None, Some(words)) => Ok(Program::Argv(words)),
        (Some(_), Some(_)) => refuse("command and argv are both given"),
        (None, None) => refuse("neither command nor argv is given"),
    }
}

/// What the operations that run something have in common.
#[derive(Debug)]
pub(super) struct RunArguments {
    pub(super) kind: RunKind,
    pub(super) place: Place,
    pub(super) program: Program,
    pub(super) cwd: Option<String>,
    pub(super) env: Option<Environment>,
    pub(super) stdin: Option<String>,
    pub(super) user: Option<User>,
    pub(super) timeout: Option<Span>,
    pub(super) limits: Option<RunLimits>,
    pub(super) lock: Option<bool>,
    /// What it may reach while it goes on.
    pub(super) allow: Vec<Grant>,
    /// Secrets it asks for.
    pub(super) secrets: Wishes,
    pub(super) wait: Option<Span>,
    pub(super) output_limit: Option<ByteSize>,
}

impl RunArguments {
    /// Starts the run and waits for it as long as was asked.
    pub(super) async fn call(
        self,
        inner: &std::sync::Arc<Inner>,
        context: &CallContext,
    ) -> Result<RunResult> {
        let wait = self.wait.unwrap_or(inner.config.wait);
        let budget = answer_budget(self.output_limit.map(|limit| (limit, context)), &inner.config);
        let plan = Plan {
            kind: self.kind,
            job: None,
            lock: self.lock.unwrap_or(false),
            allow: self.allow,
            secrets: self.secrets,
            place: self.place,
            program: self.program,
            cwd: self.cwd.as_deref().map(GuestPath::parse_absolute).transpose()?,
            env: self.env.unwrap_or_default().0,
            user: self.user.unwrap_or_default().into(),
            // A default longer than the longest allowed is the longest allowed.
            timeout: Some(self.timeout.unwrap_or(inner.current().timeout.min(inner.config.max_timeout))),
            limits: self.limits.unwrap_or_default(),
            terminal: None,
            input: self.stdin.map_or(Input::Null, |text| Input::Bytes(Bytes::from(text.into_bytes()))),
            patience: Patience::GoOn,
        };
        let run = inner.start_run(context, plan).await?;
        run.wait(context, wait.0, OnCancel::Kill).await?;
        if let Some(error) = run.finish().and_then(|finish| finish.error.clone()) {
            return Err(error);
        }
        Ok(inner.snapshot_of(&run).result(budget))
    }
}

/// The sandbox an operation means when it names none.
pub(super) fn sandbox_or_default(name: Option<SandboxName>) -> SandboxName {
    name.unwrap_or_else(SandboxName::default_sandbox)
}

/// The place of a command: a named sandbox as the configuration makes it.
pub(super) fn named_place(name: Option<SandboxName>) -> Place {
    Place::Named { name: sandbox_or_default(name), asked: Asked::default() }
}

/// Files as a list of objects, an object of path to content, or either as JSON text.
pub(super) fn files<'de, D, T>(deserializer: D) -> std::result::Result<Vec<T>, D::Error>
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
        Value::String(text) => match crate::strict_json::parse(text.as_bytes()) {
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
                    crate::values::reading::take_refused()
                        .filter(|refused| error.to_string().contains(&refused.message))
                        .unwrap_or_else(|| wrong(error.to_string()))
                })
            })
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Err(wrong("it is not a list".into())),
    }
}

/// Patterns of files that stay out.
pub(super) fn patterns(given: Option<Vec<String>>) -> Result<Vec<String>> {
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
    fn exactly_one_form_of_a_command_is_taken() {
        assert!(matches!(program(Some("ls".into()), None), Ok(Program::Shell(_))));
        assert!(matches!(program(Some("ls".into()), Some(vec![])), Ok(Program::Shell(_))));
        assert!(matches!(program(None, Some(vec!["ls".into()])), Ok(Program::Argv(_))));
        assert!(matches!(program(Some(String::new()), Some(vec!["ls".into()])), Ok(Program::Argv(_))));
        for (command, argv) in [(Some("ls"), Some(vec!["ls".to_owned()])), (None, None), (None, Some(vec![]))]
        {
            let error = program(command.map(Into::into), argv).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument);
        }
    }

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
