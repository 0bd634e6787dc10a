//! What a door knows about a call besides its arguments.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

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

/// A sign of life of a long call: seconds waited so far and a sentence.
#[derive(Debug, Clone)]
pub struct Beat {
    /// Seconds since the call began.
    pub elapsed_seconds: f64,
    /// What is going on, such as the last line of output.
    pub message: String,
}

/// Receives beats; must not block.
pub type BeatSink = Arc<dyn Fn(Beat) + Send + Sync>;

/// What a door knows about a call besides its arguments.
#[derive(Clone)]
pub struct CallContext {
    /// Through which door it came.
    pub door: Door,
    /// Who calls, for the audit: `uid:1000`, `token:default`, a client's name.
    pub actor: String,
    /// Fires when the caller no longer wants the answer; a run that was being waited for is killed.
    pub cancelled: CancellationToken,
    /// Gets a beat at least every five seconds while the call waits.
    pub beats: Option<BeatSink>,
}

impl std::fmt::Debug for CallContext {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CallContext").field("door", &self.door).field("actor", &self.actor).finish()
    }
}

impl CallContext {
    /// A context without cancellation and beats.
    #[must_use]
    pub fn new(door: Door, actor: impl Into<String>) -> Self {
        Self { door, actor: actor.into(), cancelled: CancellationToken::new(), beats: None }
    }
}
