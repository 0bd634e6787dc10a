//! Lines of the control socket, read once into what they mean. Whoever writes them is inside a sandbox:
//! everything about them may be wrong.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use isle_core::strict_json;
use isle_core::values::reading::take_refused;
use isle_core::values::{ByteSize, ChildName, SandboxName, Span};
use isle_core::{Code, Error, Result};

/// Longest line.
pub const LONGEST: usize = isle_wire::CONTROL_LINE;
/// Longest id of a request that is a text.
const LONGEST_ID: usize = 256;

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlRequest {
    /// Given back with the answer: a text, a number or nothing.
    pub id: Value,
    /// What is asked for.
    pub call: ControlCall,
}

/// What can be asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum ControlCall {
    /// Is anybody there?
    Ping,
    /// Make a child.
    Spawn(Spawn),
    /// Which children are there?
    List,
    /// Run a command in a child.
    Exec(Exec),
    /// Make a child, run a command in it, end it.
    Run(Run),
    /// End a child.
    Destroy(Named),
}

/// A child to make; what is left away follows from the policy.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spawn {
    /// Its name below its parent.
    pub name: Option<ChildName>,
    /// Its image.
    pub image: Option<String>,
    /// CPUs; 0 leaves it to the policy.
    pub cpus: Option<f64>,
    /// Memory.
    pub memory: Option<ByteSize>,
    /// How long it lives.
    pub ttl: Option<Span>,
}

/// A command for a child.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// Which child: by what its parent calls it, or its whole name.
    pub name: SandboxName,
    /// Shell text, or program and arguments.
    pub command: Command,
    /// How long it may run.
    #[serde(default)]
    pub timeout: Option<Span>,
    /// Where it runs, absolute.
    #[serde(default)]
    pub workdir: Option<String>,
    /// Its standard input.
    #[serde(default)]
    pub stdin: Option<String>,
}

/// A command for a child of its own.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Shell text, or program and arguments.
    pub command: Command,
    /// Image of the child.
    #[serde(default)]
    pub image: Option<String>,
    /// CPUs of the child.
    #[serde(default)]
    pub cpus: Option<f64>,
    /// Memory of the child.
    #[serde(default)]
    pub memory: Option<ByteSize>,
    /// How long the command may run.
    #[serde(default)]
    pub timeout: Option<Span>,
    /// Where it runs, absolute.
    #[serde(default)]
    pub workdir: Option<String>,
    /// Its standard input.
    #[serde(default)]
    pub stdin: Option<String>,
}

/// A child by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Which.
    pub name: SandboxName,
}

/// Either form of a command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Command {
    /// For a shell.
    Shell(String),
    /// Without one.
    Argv(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    #[serde(default)]
    id: Value,
    method: String,
    #[serde(default)]
    params: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Reads a line. A refusal comes with the id it answers, as far as that could be read.
pub fn read(line: &[u8]) -> std::result::Result<ControlRequest, (Value, Error)> {
    let nobody = |error: Error| (Value::Null, error);
    if line.len() > LONGEST {
        let error = Error::new(Code::InvalidArgument, format!("the line has more than {LONGEST} bytes"));
        return Err(nobody(error.next("send less in one request")));
    }
    let value = strict_json::parse(line).map_err(nobody)?;
    let Envelope { id, method, params } = parameters("a request", value).map_err(nobody)?;
    let good_id = match &id {
        Value::Null | Value::Number(_) => true,
        Value::String(text) => text.len() <= LONGEST_ID,
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    };
    if !good_id {
        let error = Error::new(Code::InvalidArgument, "the id is neither a number nor a short text");
        return Err(nobody(error.next("send \"id\": 1, or leave it away")));
    }
    let call = match method.as_str() {
        "ping" => parameters::<Nothing>("ping", params).map(|Nothing {}| ControlCall::Ping),
        "spawn" => parameters("spawn", params).map(ControlCall::Spawn),
        "list" => parameters::<Nothing>("list", params).map(|Nothing {}| ControlCall::List),
        "exec" => parameters("exec", params).map(ControlCall::Exec),
        "run" => parameters("run", params).map(ControlCall::Run),
        "destroy" => parameters("destroy", params).map(ControlCall::Destroy),
        other => Err(Error::new(Code::InvalidArgument, format!("there is no method {other:?}"))
            .next("use ping, spawn, list, exec, run or destroy")),
    };
    match call {
        Ok(call) => Ok(ControlRequest { id, call }),
        Err(error) => Err((id, error)),
    }
}

fn parameters<T: DeserializeOwned>(what: &str, value: Value) -> Result<T> {
    let value = if value.is_null() { json!({}) } else { value };
    take_refused();
    serde_json::from_value(value).map_err(|error| {
        if let Some(refused) = take_refused().filter(|refused| error.to_string().contains(&refused.message)) {
            return refused;
        }
        Error::new(Code::InvalidArgument, format!("{what}: {error}"))
            .next("send {\"id\": 1, \"method\": \"…\", \"params\": {…}} in one line")
    })
}

/// The code of an error, in the words of the socket.
#[must_use]
pub fn code(error: &Error) -> &'static str {
    match error.code.http_status() {
        400 | 413 | 422 => "INVALID_REQUEST",
        401 | 403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 | 507 => "LIMIT_REACHED",
        // A name that is taken, or something that stands in the way.
        409 if !error.code.retryable() => "INVALID_REQUEST",
        _ => "INTERNAL_ERROR",
    }
}

/// An answer as one line, without its end.
#[must_use]
pub fn answer(id: &Value, outcome: Result<Value>) -> Vec<u8> {
    let answer = match outcome {
        Ok(result) => json!({ "id": id, "result": result }),
        Err(error) => json!({
            "id": id,
            "error": {
                "code": code(&error),
                "message": error.message,
                "details": error.details,
                "next_steps": error.next_steps,
            },
        }),
    };
    answer.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_lines_mean_what_they_say() {
        let call = |text: &str| read(text.as_bytes()).unwrap();
        assert_eq!(call(r#"{"method":"ping"}"#), ControlRequest { id: Value::Null, call: ControlCall::Ping });
        assert_eq!(
            call(r#"{"id":7,"method":"list","params":{}}"#),
            ControlRequest { id: json!(7), call: ControlCall::List }
        );
        let exec =
            call(r#"{"id":"a","method":"exec","params":{"name":"x","command":["ls","-l"],"timeout":5}}"#);
        let ControlCall::Exec(exec) = exec.call else { panic!("{exec:?}") };
        assert_eq!(exec.command, Command::Argv(vec!["ls".into(), "-l".into()]));
        assert_eq!(exec.timeout, Some(Span::seconds(5)));
    }

    #[test]
    fn bad_lines_are_refused_with_the_id_they_had() {
        for (text, id) in [
            ("", Value::Null),
            ("{", Value::Null),
            ("[]", Value::Null),
            (r#"{"id":1}"#, Value::Null),
            (r#"{"id":[1],"method":"ping"}"#, Value::Null),
            (r#"{"id":1,"id":2,"method":"ping"}"#, Value::Null),
            (r#"{"id":1,"method":"ping","parent":"other"}"#, Value::Null),
            (r#"{"id":1,"method":"reset"}"#, json!(1)),
            (r#"{"id":1,"method":"ping","params":{"parent":"other"}}"#, json!(1)),
            (r#"{"id":1,"method":"spawn","params":{"tier":"process"}}"#, json!(1)),
            (r#"{"id":1,"method":"spawn","params":{"name":"../x"}}"#, json!(1)),
            (r#"{"id":1,"method":"exec","params":{"name":"x"}}"#, json!(1)),
            (r#"{"id":1,"method":"exec","params":{"name":"x","command":1}}"#, json!(1)),
            (r#"{"id":1,"method":"destroy","params":[]}"#, json!(1)),
        ] {
            let (answered, error) = read(text.as_bytes()).unwrap_err();
            assert_eq!((answered, code(&error)), (id, "INVALID_REQUEST"), "{text}");
            assert!(!error.next_steps.is_empty(), "{text}");
        }
        let long = format!(r#"{{"method":"ping","id":"{}"}}"#, "x".repeat(LONGEST));
        assert_eq!(code(&read(long.as_bytes()).unwrap_err().1), "INVALID_REQUEST");
    }
}
