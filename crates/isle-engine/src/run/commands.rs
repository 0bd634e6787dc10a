//! Several commands in one run: what is known of each while they go on and afterwards.

use isle_wire::{Exit, StepEnd};

use super::kill::signal_name;
use super::{Finish, Run};
use crate::agent::exec_error;
use isle_api::shapes::{CommandRecord, CommandState, RunState};

/// One of the commands, as its record names it.
#[derive(Debug, Clone)]
pub(crate) struct CommandText {
    pub(crate) command: String,
    pub(crate) allow_failure: bool,
}

impl CommandText {
    fn record(&self, state: CommandState) -> CommandRecord {
        CommandRecord {
            command: self.command.clone(),
            state,
            allow_failure: self.allow_failure,
            exit_code: None,
            signal: None,
            duration_ms: 0,
            stdout_offset: 0,
            stdout_bytes: 0,
            stderr_offset: 0,
            stderr_bytes: 0,
            note: None,
        }
    }

    /// Of a stored record.
    pub(crate) fn of(record: &CommandRecord) -> Self {
        Self { command: record.command.clone(), allow_failure: record.allow_failure }
    }
}

impl Run {
    /// One of its commands has ended.
    pub(super) fn note_step(&self, mut step: StepEnd) {
        let mut live = crate::lock(&self.live);
        // The agent counts what programs wrote; here counts what is shown of it.
        let [stdout, stderr] = &live.masked;
        (step.stdout_offset, step.stdout_bytes) = stdout.part(step.stdout_offset, step.stdout_bytes);
        (step.stderr_offset, step.stderr_bytes) = stderr.part(step.stderr_offset, step.stderr_bytes);
        if live.steps.len() < self.commands.len() {
            live.steps.push(step);
        }
    }

    /// What is known of its commands.
    pub(crate) fn command_records(&self) -> Vec<CommandRecord> {
        let steps = crate::lock(&self.live).steps.clone();
        let state = self.state();
        let after = if state.is_final() { CommandState::NotRun } else { CommandState::Waiting };
        let ended = steps.len();
        self.commands
            .iter()
            .enumerate()
            .map(|(number, text)| match steps.get(number) {
                Some(step) => ended_record(text, step),
                None if number == ended && state == RunState::Running => text.record(CommandState::Running),
                None => text.record(after),
            })
            .collect()
    }

    /// Adds to the end of a run what became of its commands.
    pub(super) fn complete_commands(&self, finish: &mut Finish) {
        if self.commands.is_empty() {
            return;
        }
        let mut records = self.command_records();
        for record in &mut records {
            if matches!(record.state, CommandState::Running | CommandState::Waiting) {
                // Nobody saw how far it came when the end of the run was not seen.
                record.state =
                    if finish.state == RunState::Lost { CommandState::Lost } else { CommandState::NotRun };
            }
        }
        let count = records.len();
        let failed = records.iter().position(|record| is_failure(record) && !record.allow_failure);
        let left = records.iter().filter(|record| record.state == CommandState::NotRun).count();
        if let Some(number) = failed {
            let how = how_it_ended(&records[number]);
            let rest = match left {
                0 => String::new(),
                1 => "; the one after it was not run".to_owned(),
                left => format!("; the {left} after it were not run"),
            };
            let note = format!("command {} of {count} {how}{rest}", number + 1);
            finish.note = Some(finish.note.take().map_or(note.clone(), |own| format!("{own}; {note}")));
        }
        finish.commands = records;
    }
}

fn ended_record(text: &CommandText, step: &StepEnd) -> CommandRecord {
    let (state, exit_code, signal) = match (&step.failure, step.exit) {
        (Some(failure), _) => {
            let code = if failure.kind == isle_wire::FailureKind::NotFound { 127 } else { 126 };
            (CommandState::Failed, Some(code), None)
        }
        (None, Some(Exit::Code(0))) => (CommandState::Completed, Some(0), None),
        (None, Some(Exit::Code(code))) => (CommandState::Failed, Some(code), None),
        (None, Some(Exit::Signal(signal))) => (CommandState::Killed, None, Some(signal)),
        (None, None) => (CommandState::Lost, None, None),
    };
    CommandRecord {
        exit_code,
        signal,
        duration_ms: step.wall_us / 1000,
        stdout_offset: step.stdout_offset,
        stdout_bytes: step.stdout_bytes,
        stderr_offset: step.stderr_offset,
        stderr_bytes: step.stderr_bytes,
        note: step.failure.as_ref().map(|failure| exec_error(failure, &text.command).message),
        ..text.record(state)
    }
}

fn is_failure(record: &CommandRecord) -> bool {
    matches!(record.state, CommandState::Failed | CommandState::Killed)
}

/// How it ended, in words.
fn how_it_ended(record: &CommandRecord) -> String {
    match (&record.note, record.signal, record.exit_code) {
        (Some(note), _, _) => format!("could not be started: {note}"),
        (None, Some(signal), _) => format!("was ended by {}", signal_name(signal)),
        (None, None, Some(code)) => format!("failed with status {code}"),
        (None, None, None) => "did not end well".to_owned(),
    }
}
