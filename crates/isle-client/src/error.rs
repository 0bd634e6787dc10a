//! Errors as the daemon sends them, and those the client adds when the daemon cannot be asked.

use std::io;

use hyper::header::HeaderMap;
use isle_core::Code;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::connection::INSTANCE;
use crate::endpoint::Endpoint;

/// Shorthand.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// What went wrong. The code is text, because a newer daemon may know codes this client does not.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ClientError {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// Facts.
    #[serde(default)]
    pub details: Map<String, Value>,
    /// Whether trying again can help.
    #[serde(default)]
    pub retryable: bool,
    /// What to do next, most useful first.
    #[serde(default)]
    pub next_steps: Vec<String>,
}

impl ClientError {
    /// Whether it is this code.
    #[must_use]
    pub fn is(&self, code: Code) -> bool {
        self.code == code.as_str()
    }

    /// Whether no daemon listened at all, so that starting one would help.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.is(Code::DaemonUnavailable) && self.details.get("absent") == Some(&Value::Bool(true))
    }

    /// Whether a daemon went away while it was asked.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is(Code::DaemonUnavailable) && self.details.get("interrupted") == Some(&Value::Bool(true))
    }

    /// The daemon cannot be reached.
    pub(crate) fn unreachable(place: &str, why: &io::Error) -> Self {
        let absent = matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        isle_core::Error::new(
            Code::DaemonUnavailable,
            format!("the daemon at {place} cannot be reached: {why}"),
        )
        .detail("absent", absent)
        .next("start it with `isle serve`; what ended it is in `daemon.log` of its state directory")
        .into()
    }

    /// The daemon stopped answering in the middle of something.
    pub(crate) fn interrupted(why: impl std::fmt::Display) -> Self {
        isle_core::Error::new(Code::DaemonUnavailable, format!("the connection to the daemon broke: {why}"))
            .detail("interrupted", true)
            .next("try again; `isle history` shows what had been started")
            .into()
    }

    /// The daemon answered with something this client does not understand.
    pub(crate) fn not_understood(what: impl std::fmt::Display) -> Self {
        isle_core::Error::new(Code::VersionMismatch, format!("the daemon's answer is not understood: {what}"))
            .next("`isle restart` starts a daemon of this version; sandboxes live on")
            .into()
    }
}

/// The header by which every answer names the daemon's version.
pub(crate) const VERSION_HEADER: &str = "isle-version";

/// Refuses the answer of a daemon of another version.
pub(crate) fn check_version(headers: &HeaderMap) -> Result<()> {
    match headers.get(VERSION_HEADER).and_then(|value| value.to_str().ok()) {
        Some(theirs) => same_version(theirs),
        None => Ok(()),
    }
}

/// Refuses the answer of a daemon that serves another state directory, or does not say which it serves.
pub(crate) fn check_instance(endpoint: &Endpoint, headers: &HeaderMap) -> Result<()> {
    let said = headers.get(INSTANCE).and_then(|value| value.to_str().ok());
    same_instance(endpoint, said)
}

/// The same for a header that was read already.
pub(crate) fn same_instance(endpoint: &Endpoint, said: Option<&str>) -> Result<()> {
    let Some(meant) = endpoint.instance() else { return Ok(()) };
    if said == Some(meant) {
        return Ok(());
    }
    let what = if said.is_some() { "serves another state directory" } else { "does not say what it serves" };
    Err(isle_core::Error::new(Code::WrongDaemon, format!("the daemon at {endpoint} {what}"))
        .next("leave out `--socket` and ISLE_SOCKET: the daemon of a state directory is found by itself")
        .into())
}

/// Refuses a daemon that says it is of another version.
pub(crate) fn same_version(theirs: &str) -> Result<()> {
    let ours = env!("CARGO_PKG_VERSION");
    if theirs == ours {
        return Ok(());
    }
    Err(isle_core::Error::new(
        Code::VersionMismatch,
        format!("the daemon is version {theirs}, this program is version {ours}"),
    )
    .detail("daemon", theirs)
    .detail("client", ours)
    .next("`isle restart` starts a daemon of this version; sandboxes live on")
    .into())
}

impl From<isle_core::Error> for ClientError {
    fn from(error: isle_core::Error) -> Self {
        Self {
            code: error.code.as_str().to_owned(),
            retryable: error.code.retryable(),
            message: error.message,
            details: error.details,
            next_steps: error.next_steps,
        }
    }
}
