//! What is asked of an engine beside operations: interactive commands, and following runs.

use bytes::Bytes;
use isle_wire::{GuestUser, TerminalSize};

use crate::sandbox::Settings;
use isle_api::RunLimits;
use isle_api::shapes::RunResult;
use isle_core::backend::BackendName;
use isle_core::values::{GuestPath, SandboxName, Span};

/// Where an interactive command runs.
#[derive(Debug, Clone)]
pub enum Target {
    /// In a named sandbox, made when missing.
    Named(SandboxName),
    /// In a fresh one that is gone afterwards.
    OneShot(OneShot),
}

/// A sandbox for one command.
#[derive(Debug, Clone, Default)]
pub struct OneShot {
    /// What it is like.
    pub settings: Settings,
    /// Files placed before the command starts.
    pub files: Vec<(GuestPath, Bytes)>,
}

/// What to run: exactly one form.
#[derive(Debug, Clone)]
pub enum Command {
    /// Shell text.
    Shell(String),
    /// Program and arguments.
    Argv(Vec<String>),
    /// Code in a language (`python`, `node`, `shell`).
    Code {
        /// Language, or detected when `None`.
        language: Option<String>,
        /// The code.
        code: String,
    },
}

/// An interactive command: input, output and signals pass through, nothing is cut.
#[derive(Debug, Clone)]
pub struct OpenExec {
    /// Where.
    pub target: Target,
    /// What.
    pub command: Command,
    /// Working directory; `/workspace` when `None`.
    pub cwd: Option<GuestPath>,
    /// Extra environment.
    pub env: Vec<(String, String)>,
    /// As whom.
    pub user: GuestUser,
    /// Time limit; none at all when `None` (interactive work has no default limit).
    pub timeout: Option<Span>,
    /// Limits of its own, inside those of the sandbox.
    pub limits: RunLimits,
    /// Whether a named sandbox that this call makes may hold less than its tier promises. One that
    /// exists is used as it is.
    pub allow_downgrade: bool,
    /// The backend of a named sandbox created by this call.
    pub backend: Option<BackendName>,
    /// The profile of a sandbox that this call makes; one that exists must have been made by it.
    pub profile: Option<String>,
    /// Run alone among runs with lock, in order.
    pub lock: bool,
    /// What it may reach while it runs, beside what its sandbox may, such as `example.com:443`.
    pub allow: Vec<String>,
    /// Secrets it has as placeholders, such as `KEY` or `KEY=VARIABLE`.
    pub secrets: Vec<String>,
    /// Secrets it has as values, masked in its output.
    pub expose_secrets: Vec<String>,
    /// A terminal instead of pipes.
    pub terminal: Option<TerminalSize>,
    /// Whether standard input will be sent; `/dev/null` otherwise.
    pub stdin: bool,
}

/// Where a follower begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowFrom {
    /// At the event after the one with this id; 0 is the start of what is kept.
    After(u64),
    /// At the last so many lines of each output.
    Tail(usize),
}

/// What happens in a run, for followers. Ids count up from 1 within a run.
#[derive(Debug, Clone)]
pub struct RunEvent {
    /// Position, for resuming.
    pub id: u64,
    /// What happened.
    pub kind: RunEventKind,
}

/// See [`RunEvent`].
#[derive(Debug, Clone)]
pub enum RunEventKind {
    /// The command was started.
    Started,
    /// Standard output; never splits a character.
    Stdout(String),
    /// Standard error; never splits a character.
    Stderr(String),
    /// The follower was too slow or came too late; so many bytes are missing here.
    Lost(u64),
    /// It is over. Last event.
    Ended(Box<RunResult>),
}
