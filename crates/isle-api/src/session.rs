//! The messages of interactive sessions: a WebSocket on which a client starts a command, or attaches to a run that
//! exists. The server and the clients share these types; `isle-server` documents the protocol.

use std::collections::BTreeMap;

use isle_core::backend::{BackendName, Tier};
use isle_core::values::{ByteSize, GuestPath, RunId, RunOrJob, SandboxName, Span};
use isle_core::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::run_limits::RunLimits;

/// Route of the WebSocket.
pub const ROUTE: &str = "/v1/session";

/// First byte of a binary message from the client: standard input.
pub const STDIN: u8 = 1;
/// First byte of a binary message from the server: standard output, or the terminal's.
pub const STDOUT: u8 = 2;
/// First byte of a binary message from the server: standard error.
pub const STDERR: u8 = 3;

/// The first message of a client: what the session is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstMessage {
    /// `{"start": {…}}`: run a command of its own, which ends with the session.
    Start(Box<StartRequest>),
    /// `{"attach": {"run": "box:web"}}`: join a run that exists, which the session does not end.
    Attach(AttachRequest),
}

impl FirstMessage {
    /// Reads a first message.
    pub fn read(message: Value) -> Result<Self> {
        serde_json::from_value(message).map_err(|error| {
            Error::new(Code::InvalidArgument, format!("the first message cannot be read: {error}")).next(
                "send {\"start\": {…}} with what to run, or {\"attach\": {\"run\": …}} with a run that exists, as one JSON text message",
            )
        })
    }
}

impl StartRequest {
    /// Nothing but where to run; the rest is as if it were absent.
    #[must_use]
    pub fn in_target(target: StartTarget) -> Self {
        Self {
            target,
            command: None,
            argv: None,
            code: None,
            cwd: None,
            env: BTreeMap::new(),
            user: None,
            timeout: None,
            limits: RunLimits::default(),
            allow_downgrade: false,
            backend: None,
            profile: None,
            lock: false,
            allow: Vec::new(),
            secrets: Vec::new(),
            expose_secrets: Vec::new(),
            terminal: None,
            stdin: false,
        }
    }
}

/// What to run, and where. Exactly one of `command`, `argv`, `code`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// Where.
    pub target: StartTarget,
    /// Shell text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Program and arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Code in a language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeText>,
    /// Working directory, absolute; `/workspace` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Extra environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// `sandbox` (when absent) or `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Time limit; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Limits of its own, inside those of the sandbox.
    #[serde(default)]
    pub limits: RunLimits,
    /// Whether a named sandbox made by this call may hold less than its tier promises.
    #[serde(default)]
    pub allow_downgrade: bool,
    /// The backend of a named sandbox created by this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendName>,
    /// The profile of a sandbox made by this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Run alone among runs with lock, in order.
    #[serde(default)]
    pub lock: bool,
    /// What it may reach while it runs, such as `example.com:443`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Secrets it has as placeholders, such as `KEY` or `KEY=VARIABLE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Secrets it has as values, masked in its output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expose_secrets: Vec<String>,
    /// A terminal instead of pipes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalShape>,
    /// Whether standard input will be sent.
    #[serde(default)]
    pub stdin: bool,
}

/// Where a command runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartTarget {
    /// In a named sandbox, made when missing.
    Sandbox(SandboxName),
    /// In a fresh one that is gone afterwards.
    OneShot(OneShotSpec),
}

/// The run to join: nothing is started, a run that exists is looked at and written to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachRequest {
    /// Which, by its id or its job.
    pub run: RunOrJob,
    /// The viewer's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalShape>,
}

/// A sandbox for one command; what is absent is the configured default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OneShotSpec {
    /// Tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendName>,
    /// Image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Writable layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<ByteSize>,
    /// Accept less than the tier promises.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_downgrade: Option<bool>,
    /// Files placed before the command starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PlacedFile>,
}

/// A file that is there before the command starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacedFile {
    /// Where in the sandbox.
    pub path: GuestPath,
    /// What is in it, in base64.
    pub content_base64: String,
}

/// Code in a language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeText {
    /// Language; detected when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The code.
    pub code: String,
}

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalShape {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// What the client may send after its first message, besides input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientMessage {
    /// `{"stdin": "end"}`: no more input.
    Stdin(StdinEnd),
    /// `{"resize": {"rows": 50, "columns": 120}}`: the window changed.
    Resize(TerminalShape),
    /// `{"signal": 15}`: a signal for the foreground process group.
    Signal(i32),
}

/// See [`ClientMessage::Stdin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinEnd {
    /// No more input.
    End,
}

/// What the server says, besides output. The server serializes borrowed values, the client reads owned ones.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ServerMessage<Outcome, Failure> {
    /// The command was started, or the run was joined.
    Started {
        /// The run it is recorded as.
        run_id: RunId,
        /// Whether it has a terminal.
        terminal: bool,
    },
    /// Output is missing here.
    Lost {
        /// How much.
        bytes: u64,
    },
    /// It is over. Last message.
    Ended {
        /// How it ended, a `RunResult`. Its output was streamed and is not repeated in full.
        result: Outcome,
    },
    /// The session failed. Last message.
    Error {
        /// Why.
        error: Failure,
    },
}

impl From<TerminalShape> for isle_wire::TerminalSize {
    fn from(shape: TerminalShape) -> Self {
        Self { rows: shape.rows, columns: shape.columns }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_first_message_either_starts_or_attaches() {
        let first =
            FirstMessage::read(json!({"attach": {"run": "box:web", "terminal": {"rows": 3, "columns": 4}}}));
        let Ok(FirstMessage::Attach(AttachRequest { run, terminal })) = first else {
            panic!("not an attach")
        };
        assert_eq!(run.to_string(), "box:web");
        assert_eq!(terminal, Some(TerminalShape { rows: 3, columns: 4 }));
        for more in [json!({"argv": ["a"]}), json!({"env": {"A": "1"}}), json!({"user": "root"})] {
            let mut request = json!({"run": "box:web"});
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let error = FirstMessage::read(json!({ "attach": request })).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument, "{more}");
        }
        let start = json!({"target": {"sandbox": "a"}, "command": "a"});
        let both = json!({"start": start, "attach": {"run": "box:web"}});
        for wrong in [start, both, json!({"view": "box:web"}), json!({})] {
            assert!(FirstMessage::read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_client_writes_is_what_the_server_reads() {
        let mut request = StartRequest::in_target(StartTarget::OneShot(OneShotSpec::default()));
        request.argv = Some(vec!["true".into()]);
        let first = FirstMessage::Start(Box::new(request));
        assert_eq!(FirstMessage::read(serde_json::to_value(&first).unwrap()).unwrap(), first);
    }

    #[test]
    fn client_messages_have_one_form_each() {
        let read = |text: &str| serde_json::from_str::<ClientMessage>(text);
        assert_eq!(read(r#"{"stdin": "end"}"#).unwrap(), ClientMessage::Stdin(StdinEnd::End));
        assert_eq!(read(r#"{"signal": 15}"#).unwrap(), ClientMessage::Signal(15));
        let resize = ClientMessage::Resize(TerminalShape { rows: 5, columns: 6 });
        assert_eq!(read(r#"{"resize": {"rows": 5, "columns": 6}}"#).unwrap(), resize);
        assert!(read(r#"{"stdin": "x"}"#).is_err());
        assert!(read(r#"{"signal": 1, "stdin": "end"}"#).is_err());
    }
}
