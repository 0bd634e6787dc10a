//! What one run is to be, as the operations describe it and the pipeline checks it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use isle_wire::{GuestUser, TerminalSize};
use tokio::sync::mpsc;

use super::SessionEvent;
use super::program::Language;
use super::{CommandText, RunLimits};
use crate::agent::ExecSignal;
use crate::network::NetworkWish;
use crate::sandbox::{OneShotGuard, Sandbox, Settings};
use isle_core::values::{ContextName, GuestPath, JobName, SandboxName, Span};
use isle_vault::RequestedSecrets;

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
    /// A command nobody waits for.
    Job,
    /// Several commands in a row.
    Commands,
}

impl RunKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::RunCode => "run_code",
            Self::Session => "session",
            Self::Validate => "validate",
            Self::Install => "install",
            Self::Job => "job",
            Self::Commands => "run_commands",
        }
    }

    /// The kind of a stored run.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "run_code" => Self::RunCode,
            "session" => Self::Session,
            "validate" => Self::Validate,
            "install" => Self::Install,
            "job" => Self::Job,
            "run_commands" => Self::Commands,
            _ => Self::Exec,
        }
    }
}

/// Where it runs.
#[derive(Debug)]
pub(crate) enum RunTarget {
    /// In a named sandbox, made when missing.
    Named {
        /// Which.
        name: SandboxName,
        /// What the call says about it.
        options: NamedOptions,
    },
    /// In a fresh one that is gone afterwards.
    OneShot {
        /// What the sandbox is to be.
        settings: Settings,
        /// Files placed before the command starts.
        files: Vec<(GuestPath, Bytes)>,
        /// Where to leave it for another command; `None` for the only one.
        keep: Option<OneShotSlot>,
    },
    /// In this incarnation and no other, whatever becomes of its name.
    Incarnation {
        /// Which.
        sandbox: Arc<Sandbox>,
    },
    /// In one that was kept.
    KeptOneShot {
        /// Whoever holds this last ends it.
        guard: Arc<OneShotGuard>,
    },
}

/// What a call says about the named sandbox it runs in, besides its name.
#[derive(Debug, Clone, Default)]
pub(crate) struct NamedOptions {
    /// What one that is made now is to be. One that exists must have been made so, as far as something is
    /// said; only a downgrade is its own affair.
    pub(crate) settings: Settings,
    /// Whether a paused one is resumed.
    pub(crate) resume: bool,
}

/// Where a one-shot is left for a second command.
pub(crate) type OneShotSlot = Arc<OnceLock<Arc<OneShotGuard>>>;

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
    /// Several commands, one after the other.
    Commands {
        /// Which, in order.
        commands: Vec<PlannedCommand>,
        /// Go on after one that failed.
        continue_on_error: bool,
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

/// One of several commands.
#[derive(Debug, Clone)]
pub(crate) struct PlannedCommand {
    /// Shell text, or program and arguments.
    pub(crate) program: SimpleCommand,
    /// Working directory; that of the run when `None`.
    pub(crate) cwd: Option<GuestPath>,
    /// Variables beside those of the run.
    pub(crate) env: Vec<(String, String)>,
    /// Its failure is none of the run's.
    pub(crate) allow_failure: bool,
}

/// A command without a language.
#[derive(Debug, Clone)]
pub(crate) enum SimpleCommand {
    /// Shell text.
    Shell(String),
    /// Program and arguments.
    Argv(Vec<String>),
}

impl SimpleCommand {
    /// As its record shows it.
    pub(crate) fn display(&self) -> String {
        match self {
            Self::Shell(text) => shortened(text),
            Self::Argv(argv) => shortened(&in_one_line(argv)),
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
    /// These bytes, and whatever anybody sends later.
    Kept(Bytes),
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
pub(crate) enum OnDisconnect {
    /// It goes on.
    Continue,
    /// It is ended; its output goes here, and nothing of it is dropped.
    Kill(mpsc::Sender<SessionEvent>),
}

/// One run to be.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) kind: RunKind,
    /// Its name among the jobs of its sandbox.
    pub(crate) job: Option<JobName>,
    /// Whether it takes its turn among those of its sandbox that ask for it.
    pub(crate) lock: bool,
    /// What it asks to reach, beside what its sandbox may.
    pub(crate) network: NetworkWish,
    /// Secrets it asks for, beside those its sandbox has.
    pub(crate) secrets: RequestedSecrets,
    pub(crate) target: RunTarget,
    pub(crate) program: Program,
    pub(crate) cwd: Option<GuestPath>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) user: GuestUser,
    pub(crate) timeout: Option<Span>,
    pub(crate) limits: RunLimits,
    pub(crate) terminal: Option<TerminalSize>,
    pub(crate) input: Input,
    pub(crate) on_disconnect: OnDisconnect,
}

impl Plan {
    /// A run of which nothing is said but what it is, where, and which program: as the sandbox user, in
    /// `/workspace`, without input, and as long as it takes.
    pub(crate) fn new(kind: RunKind, target: RunTarget, program: Program) -> Self {
        Self {
            kind,
            job: None,
            lock: false,
            network: NetworkWish::default(),
            secrets: RequestedSecrets::default(),
            target,
            program,
            cwd: None,
            env: Vec::new(),
            user: GuestUser::Sandbox,
            timeout: None,
            limits: RunLimits::default(),
            terminal: None,
            input: Input::Null,
            on_disconnect: OnDisconnect::Continue,
        }
    }

    /// The caller's words that go to the agent in one message: arguments and variables.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        let none: &[String] = &[];
        let (arguments, commands): (_, &[PlannedCommand]) = match &self.program {
            Program::Argv(words)
            | Program::Code { args: words, .. }
            | Program::Tool { arguments: words, .. } => (&words[..], &[]),
            Program::Commands { commands, .. } => (none, &commands[..]),
            // Long text goes through a file.
            Program::Shell(_) => (none, &[]),
        };
        let of_commands = commands.iter().flat_map(move |command| match &command.program {
            SimpleCommand::Argv(words) => &words[..],
            SimpleCommand::Shell(text) => std::slice::from_ref(text),
        });
        let variables = self.variables().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        arguments.iter().chain(of_commands).map(String::as_str).chain(variables)
    }

    /// Every variable the caller gave, for the run and for single commands of it.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &(String, String)> {
        let commands = match &self.program {
            Program::Commands { commands, .. } => commands.as_slice(),
            Program::Shell(_) | Program::Argv(_) | Program::Code { .. } | Program::Tool { .. } => &[],
        };
        self.env.iter().chain(commands.iter().flat_map(|command| &command.env))
    }

    /// The command as its record shows it.
    pub(crate) fn display(&self) -> String {
        let text = match &self.program {
            Program::Shell(text) => text.clone(),
            Program::Tool { shown, .. } => shown.clone(),
            Program::Argv(argv) => in_one_line(argv),
            Program::Commands { commands, .. } => {
                commands.iter().map(|command| command.program.display()).collect::<Vec<_>>().join("\n")
            }
            Program::Code { source: CodeSource::Text(code), .. } => code.clone(),
            Program::Code { source: CodeSource::File(path), args, .. } => std::iter::once(path.as_str())
                .chain(args.iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join(" "),
        };
        shortened(&text)
    }
}

impl Plan {
    /// The commands it consists of, when there are several.
    pub(super) fn command_texts(&self) -> Vec<CommandText> {
        let Program::Commands { commands, .. } = &self.program else { return Vec::new() };
        let text = |command: &PlannedCommand| CommandText {
            command: command.program.display(),
            allow_failure: command.allow_failure,
        };
        commands.iter().map(text).collect()
    }
}

/// A command as it fits into a record.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 4000;
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn in_one_line(argv: &[String]) -> String {
    argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell would need it.
fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "_-./=:,@%+".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
