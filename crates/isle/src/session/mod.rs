//! Interactive commands: connects this terminal's input, output, window size and signals to a command in a
//! sandbox. `isle run`, `isle exec` and `isle shell` differ only in their requests.

mod detach_keys;
mod input;
mod outcome;
mod signals;
mod sink;
mod terminal;

use std::process::ExitCode;

use isle_api::shapes::RunResult;
use isle_client::{Result, SessionEvent, SessionReader, SessionWriter};

use crate::output::{Form, print_json, print_stderr};
use detach_keys::{DetachKeys, Typed};
pub(crate) use input::{Stdin, has_stdin};

pub(crate) use outcome::{code_of, exit_code_of_error, report};
pub(crate) use signals::{Received, Signals, is_termination};
use sink::{Channel, Sink};
pub(crate) use terminal::{RawTerminal, window};

/// How input and signals are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Separate standard streams; signals are forwarded.
    Pipes,
    /// A terminal: keys are forwarded unchanged, and so are changes of the window size.
    Terminal,
}

/// Relation of this session to the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// Started by this session; killed when the session ends.
    Owner,
    /// A running job; it keeps running after the session detaches.
    Viewer {
        /// Name of the job.
        job: String,
    },
}

/// A running command and how it is displayed.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) writer: SessionWriter,
    pub(crate) reader: SessionReader,
    pub(crate) mode: Mode,
    pub(crate) form: Form,
    /// Whether this process's standard input is sent.
    pub(crate) stdin: bool,
    pub(crate) role: Role,
}

impl Session {
    /// Forwards everything until the command exits; returns the exit code.
    pub(crate) async fn drive(mut self) -> Result<ExitCode> {
        let raw = match self.mode {
            Mode::Terminal => RawTerminal::enter()?,
            Mode::Pipes => None,
        };
        let end = self.forward().await;
        // Restore the terminal before anything is printed.
        drop(raw);
        match end? {
            End::Exited(result) => Ok(self.finish(&result)),
            End::Abandoned(code) => Ok(ExitCode::from(code)),
            End::Detached => {
                if let (Role::Viewer { job }, Form::Human) = (&self.role, self.form) {
                    print_stderr(&format!(
                        "\nisle: detached from {job}, which keeps running; reattach with `isle attach {job}`"
                    ));
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    fn finish(&self, result: &RunResult) -> ExitCode {
        if self.form == Form::Json {
            print_json(&serde_json::to_value(result).unwrap_or_default());
        }
        report(result, self.form)
    }

    /// A failed send is not an error: the command may have exited before it read all its input, and its result
    /// follows. A lost connection is detected by the reader.
    async fn forward(&mut self) -> Result<End> {
        let mut signals = Signals::listen(self.mode)?;
        let mut stdin = if self.stdin { Some(Stdin::start()?) } else { None };
        let mut sink = Sink::default();
        let mut forwarded = Vec::new();
        let mut keys = DetachKeys::default();
        let is_viewer = self.role != Role::Owner;
        loop {
            tokio::select! {
                biased;
                received = signals.next() => match received {
                    Received::Window => {
                        if let Some(size) = window() {
                            self.writer.resize(size).await.ok();
                        }
                    }
                    Received::Signal(signal) if is_viewer && is_termination(signal) => return Ok(End::Detached),
                    // A second Ctrl-C closes the connection, which kills the process tree.
                    Received::Signal(signal) if is_termination(signal) && forwarded.contains(&signal) => {
                        return Ok(End::Abandoned(u8::try_from(128 + signal).unwrap_or(255)));
                    }
                    Received::Signal(signal) => {
                        forwarded.push(signal);
                        self.writer.signal(signal).await.ok();
                    }
                },
                written = sink.finished(), if sink.is_busy() => {
                    if written.is_err() {
                        return Ok(End::Abandoned(128 + 13));
                    }
                }
                event = self.reader.next(), if !sink.is_busy() => match event? {
                    SessionEvent::Started { .. } => {}
                    SessionEvent::Lost(bytes) => {
                        print_stderr(&format!("\risle: {bytes} bytes of output were dropped here\r"));
                    }
                    SessionEvent::Stdout(bytes) if self.form == Form::Human => {
                        if sink.write(Channel::Stdout, bytes).is_err() {
                            return Ok(End::Abandoned(128 + 13));
                        }
                    }
                    SessionEvent::Stderr(bytes) if self.form == Form::Human => {
                        if sink.write(Channel::Stderr, bytes).is_err() {
                            return Ok(End::Abandoned(128 + 13));
                        }
                    }
                    // With --json both are part of the result.
                    SessionEvent::Stdout(_) | SessionEvent::Stderr(_) => {}
                    SessionEvent::Ended(result) => return Ok(End::Exited(result)),
                },
                chunk = Stdin::next(stdin.as_mut()), if stdin.is_some() => match chunk {
                    Some(chunk) if is_viewer && self.mode == Mode::Terminal => {
                        let (typed, leaves) = match keys.take(&chunk) {
                            Typed::Forward(typed) => (typed, false),
                            Typed::Detach(typed) => (typed, true),
                        };
                        if !typed.is_empty() && self.writer.stdin(&typed).await.is_err() {
                            stdin = None;
                        }
                        if leaves {
                            return Ok(End::Detached);
                        }
                    }
                    Some(chunk) => {
                        if self.writer.stdin(&chunk).await.is_err() {
                            stdin = None;
                        }
                    }
                    None => {
                        stdin = None;
                        self.writer.end_stdin().await.ok();
                    }
                },
            }
        }
    }
}

enum End {
    Exited(Box<RunResult>),
    /// This session closed the connection first; exit with this code.
    Abandoned(u8),
    /// This session detached; the job keeps running.
    Detached,
}
