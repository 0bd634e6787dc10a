//! Interactive commands: input, output and signals pass through, nothing is cut, and a caller who
//! reads slowly slows the command down instead of losing bytes.

use std::sync::Arc;

use bytes::Bytes;
use isle_fail::Point;
use isle_wire::TerminalSize;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    CodeSource, Input, NamedOptions, OnDisconnect, Plan, Program, RunKind, RunTarget, SESSION_DEPTH, finished,
};
use super::{Command, OneShot, OpenExec, Runs, Target};
use crate::agent::ExecSignal;
use crate::context::CallContext;
use crate::journal::Audit;
use crate::network::{AskedGrants, NetworkWish};
use crate::sandbox::Settings;
use isle_api::shapes::RunResult;
use isle_core::backend::BackendName;
use isle_core::values::{RunId, RunOrJob};
use isle_core::{Code, Error, Result};
use isle_vault::RequestedSecrets;

/// An open interactive command. Dropping it ends the command's whole tree.
#[derive(Debug)]
pub struct Session {
    /// The run it is recorded as.
    pub run_id: RunId,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// Towards the command.
    pub input: SessionInput,
    /// From the command. Dropping it ends the command's whole tree.
    pub output: SessionOutput,
}

/// Towards an open command. When the last clone is dropped, standard input ends.
#[derive(Debug, Clone)]
pub struct SessionInput {
    signals: mpsc::Sender<ExecSignal>,
}

/// From an open command.
#[derive(Debug)]
pub struct SessionOutput {
    events: mpsc::Receiver<SessionEvent>,
}

/// What comes from an open command.
#[derive(Debug, Clone)]
pub enum SessionEvent {
    /// Standard output (or the terminal's).
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// So many bytes are missing here: this viewer was too slow, or nobody kept them.
    Lost(u64),
    /// It is over. Last event.
    Ended(Box<RunResult>),
}

impl SessionInput {
    /// Sends standard input.
    pub async fn stdin(&self, bytes: Bytes) -> Result<()> {
        self.send(ExecSignal::Stdin(bytes)).await
    }

    /// Ends standard input.
    pub async fn close_stdin(&self) -> Result<()> {
        self.send(ExecSignal::CloseStdin).await
    }

    /// The window changed.
    pub async fn resize(&self, size: TerminalSize) -> Result<()> {
        self.send(ExecSignal::Resize(size)).await
    }

    /// Signals the foreground process group.
    pub async fn signal(&self, signal: i32) -> Result<()> {
        self.send(ExecSignal::Signal(signal)).await
    }

    async fn send(&self, signal: ExecSignal) -> Result<()> {
        self.signals.send(signal).await.map_err(|_| {
            Error::new(Code::RunFinished, "the command has already ended")
                .next("read the rest of its output; its end is the last event")
        })
    }
}

impl SessionOutput {
    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<SessionEvent> {
        self.events.recv().await
    }
}

impl Runs {
    /// Opens an interactive command. It walks the same pipeline as every other run.
    pub(crate) async fn open_session(
        self: &Arc<Self>,
        context: &CallContext,
        request: OpenExec,
    ) -> Result<Session> {
        let asked = AskedGrants::read(context, &request.allow, None)?;
        let (signals, from_caller) = mpsc::channel(SESSION_DEPTH);
        let (to_caller, events) = mpsc::channel(SESSION_DEPTH);
        let place = place(request.target, request.allow_downgrade, request.backend, request.profile);
        let plan = Plan {
            lock: request.lock,
            network: NetworkWish::asked(asked),
            secrets: RequestedSecrets::parse(&request.secrets, &request.expose_secrets)?,
            cwd: request.cwd,
            env: request.env,
            user: request.user,
            timeout: request.timeout,
            limits: request.limits,
            terminal: request.terminal,
            // A terminal always has an input: its own.
            input: Input::Live { signals: from_caller, stdin: request.stdin || request.terminal.is_some() },
            on_disconnect: OnDisconnect::Kill(to_caller),
            ..Plan::new(RunKind::Session, place, program(request.command))
        };
        let run = self.start(context, plan).await?;
        Ok(Session {
            run_id: run.id.clone(),
            terminal: run.terminal,
            input: SessionInput { signals },
            output: SessionOutput { events },
        })
    }

    /// Opens a view of a run that goes on. Dropping the session leaves the run as it is.
    pub(crate) fn open_view(
        self: &Arc<Self>,
        context: &CallContext,
        which: &RunOrJob,
        window: Option<TerminalSize>,
    ) -> Result<Session> {
        self.tasks.refuse_when_stopping()?;
        let id = self.find_run(context, which)?;
        let run = match self.live.get(&id) {
            Some(run) if !run.state().is_final() => run,
            _ => return Err(finished(id.as_str(), self.snapshot(&id)?.state.as_str())),
        };
        self.journal.audit(&Audit::run(context, "attach", &run, json!({})))?;
        isle_fail::pass(Point::AttachAudited);
        let (signals, from_viewer) = mpsc::channel(SESSION_DEPTH);
        let (to_viewer, events) = mpsc::channel(SESSION_DEPTH);
        let terminal = run.terminal;
        self.tasks.spawn(run.show(Arc::clone(self), window, from_viewer, to_viewer));
        Ok(Session {
            run_id: id,
            terminal,
            input: SessionInput { signals },
            output: SessionOutput { events },
        })
    }
}

fn place(
    target: Target,
    allow_downgrade: bool,
    backend: Option<BackendName>,
    profile: Option<String>,
) -> RunTarget {
    match target {
        Target::Named(name) => {
            let allow_downgrade = allow_downgrade.then_some(true);
            let settings = Settings { allow_downgrade, backend, profile, ..Settings::default() };
            RunTarget::Named { name, options: NamedOptions { settings, resume: false } }
        }
        Target::OneShot(OneShot { settings, files }) => {
            RunTarget::OneShot { settings: Settings { profile, ..settings }, files, keep: None }
        }
    }
}

fn program(command: Command) -> Program {
    match command {
        Command::Shell(text) => Program::Shell(text),
        Command::Argv(argv) => Program::Argv(argv),
        Command::Code { language, code } => Program::Code {
            language,
            source: CodeSource::Text(code),
            args: Vec::new(),
            restricted: false,
            context: None,
        },
    }
}
