//! The text frames of an attached command, and how the first becomes an engine request.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use isle_engine::backend::Tier;
use isle_engine::engine::{Command, OneShot, OpenExec, RunLimits, Target};
use isle_engine::ops::shapes::RunResult;
use isle_engine::sandbox::Settings;
use isle_engine::values::{ByteSize, GuestPath, RunId, RunOrJob, SandboxName, Span};
use isle_engine::{Code, Error, Result};
use isle_wire::TerminalSize;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::routes::parse_user;

/// What to run, and where: a first message. Exactly one of `command`, `argv`, `code`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachRequest {
    /// Where.
    pub target: AttachTarget,
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
pub enum AttachTarget {
    /// In a named sandbox, made when missing.
    Sandbox(SandboxName),
    /// In a fresh one that is gone afterwards.
    OneShot(OneShotSpec),
}

/// The other first message: nothing is run, a run that goes on is looked at and written to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewRequest {
    /// Which, by its id or its job.
    pub view: RunOrJob,
    /// The viewer's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalShape>,
}

/// What a first message asks for.
#[derive(Debug, Clone)]
pub(crate) enum Opening {
    /// A command of its own.
    Command(Box<OpenExec>),
    /// A view of a run that goes on.
    View {
        /// Which.
        run: RunOrJob,
        /// The viewer's window.
        window: Option<TerminalSize>,
    },
}

/// A sandbox for one command; what is absent is the configured default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OneShotSpec {
    /// Tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
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

/// What the server says, besides output.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ServerMessage<'a> {
    /// The command was started.
    Started {
        /// The run it is recorded as.
        run_id: &'a RunId,
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
        /// How it ended. Its output was streamed and is not repeated in full.
        result: &'a RunResult,
    },
    /// It could not go on. Last message.
    Error {
        /// Why.
        error: &'a Error,
    },
}

impl Opening {
    /// Reads a first message: which of the two it is, its first word says.
    pub(crate) fn read(message: Value) -> Result<Self> {
        let refuse = |error: serde_json::Error| {
            Error::new(Code::InvalidArgument, format!("the first message cannot be read: {error}"))
                .next("send what to run, or `view` and the run to look at, as one JSON text message")
        };
        if message.get("view").is_some() {
            let ViewRequest { view, terminal } = serde_json::from_value(message).map_err(refuse)?;
            return Ok(Self::View { run: view, window: terminal.map(TerminalSize::from) });
        }
        let request: AttachRequest = serde_json::from_value(message).map_err(refuse)?;
        request.into_open().map(|request| Self::Command(Box::new(request)))
    }
}

impl AttachRequest {
    /// Checks what serde could not.
    fn into_open(self) -> Result<OpenExec> {
        let command = match (self.command, self.argv, self.code) {
            (Some(text), None, None) => Command::Shell(text),
            (None, Some(argv), None) => Command::Argv(argv),
            (None, None, Some(code)) => Command::Code { language: code.language, code: code.code },
            _ => {
                return Err(Error::new(
                    Code::InvalidArgument,
                    "exactly one of `command`, `argv` and `code` is due",
                )
                .next("give one of them"));
            }
        };
        let target = match self.target {
            AttachTarget::Sandbox(name) => Target::Named(name),
            AttachTarget::OneShot(spec) => Target::OneShot(spec.into_one_shot()?),
        };
        Ok(OpenExec {
            target,
            command,
            cwd: self.cwd.as_deref().map(GuestPath::parse_absolute).transpose()?,
            env: self.env.into_iter().collect(),
            user: parse_user(self.user.as_deref())?,
            timeout: self.timeout,
            limits: self.limits,
            allow_downgrade: self.allow_downgrade,
            profile: self.profile,
            lock: self.lock,
            allow: self.allow,
            secrets: self.secrets,
            expose_secrets: self.expose_secrets,
            terminal: self.terminal.map(TerminalSize::from),
            stdin: self.stdin,
        })
    }
}

impl OneShotSpec {
    fn into_one_shot(self) -> Result<OneShot> {
        let files = self.files.into_iter().map(PlacedFile::decode).collect::<Result<_>>()?;
        let settings = Settings {
            tier: self.tier,
            image: self.image,
            memory: self.memory,
            cpus: self.cpus,
            pids: self.pids,
            disk: self.disk,
            allow_downgrade: self.allow_downgrade,
            ..Settings::default()
        };
        Ok(OneShot { settings, files })
    }
}

impl PlacedFile {
    fn decode(self) -> Result<(GuestPath, Bytes)> {
        match STANDARD.decode(&self.content_base64) {
            Ok(content) => Ok((self.path, content.into())),
            Err(error) => Err(Error::new(
                Code::InvalidArgument,
                format!("the content of {} is not base64: {error}", self.path),
            )
            .next("encode it in standard base64 with padding")),
        }
    }
}

impl From<TerminalShape> for TerminalSize {
    fn from(shape: TerminalShape) -> Self {
        Self { rows: shape.rows, columns: shape.columns }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open(value: Value) -> Result<OpenExec> {
        match Opening::read(value)? {
            Opening::Command(command) => Ok(*command),
            Opening::View { run, .. } => Err(Error::internal(format!("a view of {run}"))),
        }
    }

    #[test]
    fn a_run_that_goes_on_is_only_looked_at() {
        let opening = Opening::read(json!({"view": "box:web", "terminal": {"rows": 3, "columns": 4}}));
        let Ok(Opening::View { run, window }) = opening else { panic!("no view") };
        assert_eq!(run.to_string(), "box:web");
        assert_eq!(window, Some(TerminalSize { rows: 3, columns: 4 }));
        for more in [json!({"argv": ["a"]}), json!({"env": {"A": "1"}}), json!({"user": "root"})] {
            let mut request = json!({"view": "box:web"});
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(Opening::read(request).unwrap_err().code, Code::InvalidArgument, "{more}");
        }
    }

    #[test]
    fn a_one_shot_carries_its_files_and_limits() {
        let request = open(json!({
            "target": {"one_shot": {"memory": "64M", "files": [{"path": "a", "content_base64": "aGk="}]}},
            "argv": ["cat", "a"], "env": {"A": "1"}, "cwd": "/tmp", "timeout": "5s", "stdin": true,
            "terminal": {"rows": 3, "columns": 4}, "user": "root"
        }))
        .unwrap();
        let Target::OneShot(one_shot) = request.target else { panic!("not a one-shot") };
        assert_eq!(one_shot.settings.memory, Some(ByteSize::mib(64)));
        assert_eq!(&one_shot.files[0].1[..], b"hi");
        assert_eq!(request.env, [("A".to_owned(), "1".to_owned())]);
        assert_eq!(request.timeout, Some(Span::seconds(5)));
    }

    #[test]
    fn both_neither_or_unknown_is_refused() {
        let target = json!({"sandbox": "a"});
        assert!(open(json!({"target": target})).is_err());
        assert!(open(json!({"target": target, "command": "a", "argv": ["a"]})).is_err());
        assert!(open(json!({"target": target, "command": "a", "colour": 1})).is_err());
        assert!(open(json!({"target": target, "command": "a", "cwd": "relative"})).is_err());
        assert!(open(json!({"target": {"sandbox": "../a"}, "command": "a"})).is_err());
        assert!(open(json!({"target": target, "command": "a"})).is_ok());
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
