//! Maps the result of a run to an exit code and a message, like other container tools.

use std::process::ExitCode;

use isle_api::shapes::{RunResult, RunState};
use isle_client::ClientError;
use isle_core::Code;

use crate::output::{Colour, Form, Paint, escaped, print_stderr};

/// Prints notes about the run on standard error and returns the exit code.
pub(crate) fn report(result: &RunResult, form: Form) -> ExitCode {
    let (code, note) = outcome(result);
    if form == Form::Human {
        let paint = Paint::for_stderr();
        if let Some(note) = note {
            print_stderr(&format!("{} {}", paint.bold(Colour::Yellow, "isle:"), escaped(&note)));
        }
        for violation in &result.violations {
            let whose = if violation.shared { ", by some process of the sandbox" } else { "" };
            let line =
                format!("denied {} ({}×{whose}): {}", violation.what, violation.count, violation.remedy);
            print_stderr(&format!("{} {}", paint.bold(Colour::Yellow, "isle:"), escaped(&line)));
        }
    }
    ExitCode::from(code)
}

/// The exit code alone.
pub(crate) fn code_of(result: &RunResult) -> u8 {
    outcome(result).0
}

fn outcome(result: &RunResult) -> (u8, Option<String>) {
    let own = result.exit_code.map(|code| u8::try_from(code & 0xff).unwrap_or(1));
    let by_signal = result.signal.map(|signal| u8::try_from(128 + (signal & 0x7f)).unwrap_or(255));
    let note = |default: &str| Some(result.note.clone().unwrap_or_else(|| default.to_owned()));
    match result.state {
        RunState::Completed => (own.unwrap_or(0), result.note.clone()),
        RunState::Failed => (own.or(by_signal).unwrap_or(125), result.note.clone()),
        RunState::TimedOut => (124, note("timed out; the process tree was killed")),
        RunState::OomKilled => (137, note("killed: out of memory; use a larger --memory")),
        RunState::Killed => (by_signal.or(own).unwrap_or(137), result.note.clone()),
        RunState::Cancelled => (by_signal.unwrap_or(130), result.note.clone()),
        RunState::Lost => (125, note("exit status unknown; the command was not run again")),
        RunState::Queued | RunState::Running => {
            (125, note("the command is still running; see `isle history`"))
        }
    }
}

/// The exit code of a command that could not be started: 127 when the program was not found, 126 when it
/// is not executable, 125 for errors of Isle itself.
pub(crate) fn exit_code_of_error(error: &ClientError) -> ExitCode {
    if error.is(Code::CommandNotFound) {
        ExitCode::from(127)
    } else if error.is(Code::PermissionDenied) {
        ExitCode::from(126)
    } else {
        ExitCode::from(125)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ended(state: &str, exit_code: Option<i32>, signal: Option<i32>) -> u8 {
        let result = json!({
            "run_id": "run_00000000000000000000000000", "sandbox": "default", "state": state,
            "exit_code": exit_code, "signal": signal, "stdout": "", "stderr": "", "duration_ms": 1,
            "stdout_truncated": false, "stderr_truncated": false, "stdout_bytes": 0, "stderr_bytes": 0,
        });
        outcome(&serde_json::from_value(result).unwrap()).0
    }

    #[test]
    fn exit_codes_are_those_of_other_container_tools() {
        assert_eq!(ended("completed", Some(0), None), 0);
        assert_eq!(ended("failed", Some(3), None), 3);
        assert_eq!(ended("killed", None, Some(15)), 143);
        assert_eq!(ended("timed_out", None, Some(9)), 124);
        assert_eq!(ended("oom_killed", None, Some(9)), 137);
        assert_eq!(ended("lost", None, None), 125);
    }
}
