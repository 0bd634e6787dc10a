//! What one run is to be, as the operations describe it and the pipeline checks it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use isle_wire::{GuestUser, TerminalSize};
use tokio::sync::mpsc;

use super::RunLimits;
use super::program::Language;
use crate::agent::ExecSignal;
use crate::engine::SessionEvent;
use crate::sandbox::{OneShotGuard, Settings};
use crate::values::{ContextName, GuestPath, SandboxName, Span};

/// Which call made a run, for its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// A command.
    Exec,
    /// Code in a language.
    RunCode,
    /// An interactive command.
    Session,
    /// A look at code.
    Validate,
    /// Packages being installed.
    Install,
}

impl RunKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::RunCode => "run_code",
            Self::Session => "session",
            Self::Validate => "validate",
            Self::Install => "install",
        }
    }

    /// The kind of a stored run.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "run_code" => Self::RunCode,
            "session" => Self::Session,
            "validate" => Self::Validate,
            "install" => Self::Install,
            _ => Self::Exec,
        }
    }
}

/// Where it runs.
#[derive(Debug)]
pub(crate) enum Place {
    /// In a named sandbox, made when missing.
    Named {
        /// Which.
        name: SandboxName,
        /// Whether one made now may hold less than its tier promises; `false` leaves it to the
        /// configuration.
        allow_downgrade: bool,
    },
    /// In a fresh one that is gone afterwards.
    OneShot {
        /// What the sandbox is to be.
        settings: Settings,
        /// Files placed before the command starts.
        files: Vec<(GuestPath, Bytes)>,
        /// Where to leave it for another command; `None` for the only one.
        keep: Option<Kept>,
    },
    /// In one that was kept.
    Held {
        /// Whoever holds this last ends it.
        guard: Arc<OneShotGuard>,
    },
}

/// Where a one-shot is left for a second command.
pub(crate) type Kept = Arc<OnceLock<Arc<OneShotGuard>>>;

/// What runs.
#[derive(Debug, Clone)]
pub(crate) enum Program {
    /// Shell text.
    Shell(String),
    /// Program and arguments.
    Argv(Vec<String>),
    /// Code in a language.
    Code {
        /// Which language; detected when `None`.
        language: Option<String>,
        /// The code, or the file that holds it.
        source: CodeSource,
        /// Arguments of the code.
        args: Vec<String>,
        /// A shell that may not change directory, redirect or name paths.
        restricted: bool,
        /// The context it runs in.
        context: Option<ContextName>,
    },
    /// A program of the sandbox that an operation makes use of.
    Tool {
        /// What it does, for its record.
        shown: String,
        /// Which program.
        runner: Runner,
        /// Its arguments.
        arguments: Vec<String>,
        /// Whether the variables of the sandbox reach it.
        variables: bool,
    },
}

/// A program an operation makes use of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Runner {
    /// The interpreter of a language.
    Interpreter(Language),
    /// The first of these programs that the sandbox has.
    Program {
        /// What it is, for errors and for remembering where it is.
        what: &'static str,
        /// By name.
        candidates: &'static [&'static str],
    },
}

impl Runner {
    /// What it is, and by which names it is found.
    pub(crate) fn names(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Interpreter(language) => language.candidates(),
            Self::Program { what, candidates } => (what, candidates),
        }
    }
}

/// Where code comes from.
#[derive(Debug, Clone)]
pub(crate) enum CodeSource {
    /// The code itself.
    Text(String),
    /// A file in the sandbox.
    File(GuestPath),
}

/// Where standard input comes from.
#[derive(Debug)]
pub(crate) enum Input {
    /// `/dev/null`.
    Null,
    /// These bytes, then the end.
    Bytes(Bytes),
    /// An interactive caller.
    Live {
        /// What the caller sends.
        signals: mpsc::Receiver<ExecSignal>,
        /// Whether any of it is standard input.
        stdin: bool,
    },
}

/// What happens to a run nobody waits for any more.
#[derive(Debug)]
pub(crate) enum Patience {
    /// It goes on.
    GoOn,
    /// It is ended; its output goes here, and nothing of it is dropped.
    EndWithCaller(mpsc::Sender<SessionEvent>),
}

/// One run to be.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) kind: RunKind,
    pub(crate) place: Place,
    pub(crate) program: Program,
    pub(crate) cwd: Option<GuestPath>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) user: GuestUser,
    pub(crate) timeout: Option<Span>,
    pub(crate) limits: RunLimits,
    pub(crate) terminal: Option<TerminalSize>,
    pub(crate) input: Input,
    pub(crate) patience: Patience,
}

impl Plan {
    /// The command as its record shows it.
    pub(crate) fn display(&self) -> String {
        let text = match &self.program {
            Program::Shell(text) => text.clone(),
            Program::Tool { shown, .. } => shown.clone(),
            Program::Argv(argv) => argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            Program::Code { source: CodeSource::Text(code), .. } => code.clone(),
            Program::Code { source: CodeSource::File(path), args, .. } => std::iter::once(path.as_str())
                .chain(args.iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join(" "),
        };
        const LONGEST: usize = 4000;
        match text.char_indices().nth(LONGEST) {
            None => text,
            Some((end, _)) => format!("{}…", &text[..end]),
        }
    }
}

/// A word as a shell would need it.
fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "_-./=:,@%+".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
