//! What a door knows about a call besides its arguments.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::network::QuestionSender;
use isle_core::values::{Address, Namespace, SandboxName};
use isle_core::{Code, Error, Result};

/// Through which door a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Model Context Protocol.
    Mcp,
    /// REST.
    Http,
    /// The command line.
    Cli,
    /// A program that links the engine.
    Library,
    /// The control socket inside a sandbox.
    Guest,
}

impl Door {
    /// For audit rows and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Http => "http",
            Self::Cli => "cli",
            Self::Library => "library",
            Self::Guest => "guest",
        }
    }
}

/// A sign of life of a long call: how far it is and a sentence.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Seconds since the call began, or the bytes a transfer has carried.
    pub progress: f64,
    /// Where it ends, when that is known.
    pub total: Option<f64>,
    /// What is going on, such as the last line of output.
    pub message: String,
}

/// Receives progress; must not block.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// What a caller may do besides working in its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerRole {
    /// Whoever runs the daemon: may choose a namespace, and see to all of them.
    Operator,
    /// Whoever has the token of a namespace: that and nothing else.
    Tenant,
}

/// What a door knows about a call besides its arguments.
#[derive(Clone)]
pub struct CallContext {
    /// Through which door it came.
    pub door: Door,
    /// Who calls, for the audit: `uid:1000`, `token:default`, a client's name.
    pub actor: String,
    /// In which namespace it works: nothing outside of it exists for the call.
    pub namespace: Namespace,
    /// What it may do besides.
    pub role: CallerRole,
    /// Fires when the caller no longer wants the answer; a run that was being waited for is killed.
    pub cancelled: CancellationToken,
    /// Gets progress at least every five seconds while the call waits for a run or carries files.
    pub progress: Option<ProgressSink>,
    /// Where questions go that somebody there can answer while the call waits.
    pub questions: Option<QuestionSender>,
}

impl std::fmt::Debug for CallContext {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CallContext")
            .field("door", &self.door)
            .field("actor", &self.actor)
            .field("namespace", &self.namespace)
            .finish()
    }
}

impl CallContext {
    /// A context of the operator in the namespace `default`, without cancellation and progress.
    #[must_use]
    pub fn new(door: Door, actor: impl Into<String>) -> Self {
        Self {
            door,
            actor: actor.into(),
            namespace: Namespace::default(),
            role: CallerRole::Operator,
            cancelled: CancellationToken::new(),
            progress: None,
            questions: None,
        }
    }

    /// The same in another namespace, with what may be done there.
    #[must_use]
    pub fn within(self, namespace: Namespace, role: CallerRole) -> Self {
        Self { namespace, role, ..self }
    }

    /// A sandbox as this caller names it.
    pub(crate) fn address(&self, name: &SandboxName) -> Address {
        Address::new(self.namespace.clone(), name.clone())
    }

    /// Refuses what is the operator's.
    pub(crate) fn operator_only(&self, what: &str) -> Result<()> {
        match self.role {
            CallerRole::Operator => Ok(()),
            CallerRole::Tenant => Err(Error::new(Code::Forbidden, format!("{what} is the operator's"))
                .next("ask whoever runs the daemon; the token of a namespace is for work in it")),
        }
    }
}
