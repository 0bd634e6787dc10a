//! Interactive commands: this terminal's input, output, window and signals on one side, a command
//! in a sandbox on the other. `isle run`, `isle exec` and `isle shell` differ only in what they ask for.

mod input;
mod leave;
mod outcome;
mod signals;
mod sink;
mod terminal;

use std::process::ExitCode;

use isle_client::{AttachEvent, AttachReader, AttachWriter, Result};
use isle_engine::ops::shapes::RunResult;

use crate::output::{Form, print_json, say};
pub(crate) use input::{Stdin, stdin_is_wanted};
use leave::{LeaveKeys, Typed};

pub(crate) use outcome::{code_of, exit_code_of_error, report};
pub(crate) use signals::{Arrived, Signals, asks_to_end};
use sink::{Channel, Sink};
pub(crate) use terminal::{RawTerminal, window};

/// What passes through besides output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Standard streams apart, signals passed on.
    Pipes,
    /// A terminal: keys go through as they are, the window size follows.
    Terminal,
}

/// Whose command it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// Ours: it ends with us.
    Owner,
    /// Somebody's: we look at it, and leave.
    Viewer {
        /// What it is called.
        job: String,
    },
}

/// An open command and how it is shown.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) writer: AttachWriter,
    pub(crate) reader: AttachReader,
    pub(crate) mode: Mode,
    pub(crate) form: Form,
    /// Whether this process's standard input is sent.
    pub(crate) stdin: bool,
    pub(crate) role: Role,
}

impl Session {
    /// Passes everything through until the command has ended; gives the exit code to end with.
    pub(crate) async fn drive(mut self) -> Result<ExitCode> {
        let raw = match self.mode {
            Mode::Terminal => RawTerminal::enter()?,
            Mode::Pipes => None,
        };
        let ended = self.pass_through().await;
        // Before a word is printed: the terminal must be as it was.
        drop(raw);
        match ended? {
            Ended::Result(result) => Ok(self.finish(&result)),
            Ended::Abandoned(code) => Ok(ExitCode::from(code)),
            Ended::Left => {
                if let (Role::Viewer { job }, Form::Human) = (&self.role, self.form) {
                    say(&format!("\nisle: left {job}; it goes on. `isle attach {job}` comes back to it"));
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

    /// What cannot be sent is no failure by itself: a command may have ended before it took all its
    /// input, and its end is then on its way. A connection that broke is noticed where it is read.
    async fn pass_through(&mut self) -> Result<Ended> {
        let mut signals = Signals::listen(self.mode)?;
        let mut stdin = if self.stdin { Some(Stdin::start()?) } else { None };
        let mut sink = Sink::default();
        let mut passed_on = Vec::new();
        let mut keys = LeaveKeys::default();
        let looks_on = self.role != Role::Owner;
        loop {
            tokio::select! {
                biased;
                arrived = signals.next() => match arrived {
                    Arrived::Window => {
                        if let Some(size) = window() {
                            self.writer.resize(size).await.ok();
                        }
                    }
                    Arrived::Signal(signal) if looks_on && asks_to_end(signal) => return Ok(Ended::Left),
                    // The second Ctrl-C means now: letting go of the connection ends the whole tree.
                    Arrived::Signal(signal) if asks_to_end(signal) && passed_on.contains(&signal) => {
                        return Ok(Ended::Abandoned(u8::try_from(128 + signal).unwrap_or(255)));
                    }
                    Arrived::Signal(signal) => {
                        passed_on.push(signal);
                        self.writer.signal(signal).await.ok();
                    }
                },
                written = sink.finished(), if sink.is_busy() => {
                    if written.is_err() {
                        return Ok(Ended::Abandoned(128 + 13));
                    }
                }
                event = self.reader.next(), if !sink.is_busy() => match event? {
                    AttachEvent::Started { .. } => {}
                    AttachEvent::Lost(bytes) => {
                        say(&format!("\risle: {bytes} bytes were not kept and are missing here\r"));
                    }
                    AttachEvent::Stdout(bytes) if self.form == Form::Human => {
                        if sink.write(Channel::Stdout, bytes).is_err() {
                            return Ok(Ended::Abandoned(128 + 13));
                        }
                    }
                    AttachEvent::Stderr(bytes) if self.form == Form::Human => {
                        if sink.write(Channel::Stderr, bytes).is_err() {
                            return Ok(Ended::Abandoned(128 + 13));
                        }
                    }
                    // Both are in the result, which is what was asked for.
                    AttachEvent::Stdout(_) | AttachEvent::Stderr(_) => {}
                    AttachEvent::Ended(result) => return Ok(Ended::Result(result)),
                },
                chunk = Stdin::next(stdin.as_mut()), if stdin.is_some() => match chunk {
                    Some(chunk) if looks_on && self.mode == Mode::Terminal => {
                        let (typed, leaves) = match keys.take(&chunk) {
                            Typed::On(typed) => (typed, false),
                            Typed::Leave(typed) => (typed, true),
                        };
                        if !typed.is_empty() && self.writer.stdin(&typed).await.is_err() {
                            stdin = None;
                        }
                        if leaves {
                            return Ok(Ended::Left);
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

enum Ended {
    Result(Box<RunResult>),
    /// We let go first, with this exit code.
    Abandoned(u8),
    /// We left, and it goes on.
    Left,
}
