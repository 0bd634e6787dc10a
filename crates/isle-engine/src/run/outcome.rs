//! What an end means: finished, failed, out of time, out of memory, ended from outside, or not
//! known. The note says which limit was hit and how to raise it.

use isle_wire::{Ended, Exit, Failure, FailureKind, Violation};

use super::kill::signal_name;
use super::limits::{Happenings, broken_disk, limits_hit, mark_shared, sentence};
use super::{Ending, Finish, Run};
use crate::agent::{exec_error, gone};
use crate::network::RunTraffic;
use crate::run::program::Language;
use crate::sandbox::SandboxState;
use isle_api::shapes::{LimitName, RunState, ViolationShape};
use isle_core::backend::Lifetime;
use isle_core::{Code, Error};

const SIGKILL: i32 = 9;
/// What a shell answers when its child was ended by SIGKILL.
const CHILD_KILLED: i32 = 128 + SIGKILL;

/// How the stream of a run ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The agent said how it ended.
    Ended(Box<Ended>),
    /// The agent said why it could not start.
    Failed(Failure),
    /// The stream broke.
    Broken(Error),
}

/// What the end means, given what happened to the sandbox while the run went on.
pub(crate) fn classify(
    run: &Run,
    end: End,
    named: &str,
    language: Option<Language>,
    window: &RunTraffic,
    happenings: Happenings,
) -> Finish {
    let finish = match end {
        End::Ended(ended) => ended_finish(run, &ended, window, happenings),
        // A run the agent was asked to go on with, but no longer knows.
        End::Failed(failure) if failure.kind == FailureKind::NoSuchRun => broken_finish(run, &gone()),
        End::Failed(failure) => failed_finish(run, &failure, named, language),
        End::Broken(error) => broken_finish(run, &error),
    };
    // All that was denied is in the log by now.
    Finish { network: window.network(), ..finish }
}

fn ended_finish(run: &Run, ended: &Ended, window: &RunTraffic, happenings: Happenings) -> Finish {
    let (exit_code, signal) = match ended.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    let overdue = ended.timed_out || run.ending() == Ending::Overdue;
    let ran_out_of_memory = happenings.ran_out_of_memory;
    let killed_for_memory = ran_out_of_memory && (signal == Some(SIGKILL) || exit_code == Some(CHILD_KILLED));
    let memory = run.sandbox.spec.limits.memory;
    let exceeded = ended.exceeded.filter(|_| run.ending() == Ending::Own);
    let (state, note) = match (run.ending(), ended.exit) {
        _ if overdue => (RunState::TimedOut, Some(timed_out_note(run))),
        (Ending::Stopped, _) => (RunState::Cancelled, Some(stopped_note(run))),
        (Ending::Cancelled, _) => {
            (RunState::Cancelled, Some("the caller cancelled it; the whole tree was ended".into()))
        }
        (Ending::Killed, _) => (RunState::Killed, Some("ended by `kill`".into())),
        (Ending::Destroyed, _) => (RunState::Killed, Some("its sandbox was destroyed".into())),
        (Ending::Expired, _) => (RunState::Killed, Some("the time of its sandbox was up".into())),
        (Ending::Reset, _) => (RunState::Killed, Some("its sandbox was reset".into())),
        _ if killed_for_memory => (
            RunState::OomKilled,
            Some(format!(
                "the sandbox's memory limit of {memory} was reached; use less, or make the sandbox anew with more `memory`"
            )),
        ),
        // The program ended, or a shell did because of it: either way the limit was the reason, and is
        // told below.
        _ if exceeded.is_some() => (RunState::Killed, None),
        (_, Exit::Signal(signal)) => {
            (RunState::Killed, Some(format!("ended by signal {signal} ({})", signal_name(signal))))
        }
        (_, Exit::Code(0)) => (RunState::Completed, None),
        (_, Exit::Code(_)) => (RunState::Failed, None),
    };
    let mut notes: Vec<String> = note.into_iter().collect();
    if ran_out_of_memory && state != RunState::OomKilled {
        notes.push(format!(
            "a process of this sandbox was ended because its memory limit of {memory} was reached"
        ));
    }
    let mut limits_hit = limits_hit(run, ended, state, happenings);
    if window.overlaps() {
        mark_shared(&mut limits_hit, ended, state);
    }
    // Memory and time were told above, in the words of this end.
    let told = [LimitName::Memory, LimitName::Timeout];
    notes.extend(limits_hit.iter().filter(|hit| !told.contains(&hit.limit)).map(sentence));
    if state != RunState::Completed {
        notes.extend(broken_disk(run));
    }
    if ended.leftovers > 0 && state == RunState::Completed {
        notes.push(format!(
            "{} it left behind ended with it; to keep one going, start it as a job, or in the foreground with wait \"0s\"",
            if ended.leftovers == 1 { "a process".into() } else { format!("{} processes", ended.leftovers) }
        ));
    }
    Finish {
        state,
        exit_code,
        signal,
        duration_ms: ended.wall_us / 1000,
        cpu_us: Some(ended.cpu_us),
        peak_rss_kib: Some(ended.peak_rss_kib),
        transferred: ended.transferred,
        network: None,
        most_tasks: ended.most_tasks,
        violations: ended
            .violations
            .iter()
            .map(violation)
            .chain(window.denials(&run.id))
            .chain(window.dialed_addresses(ended.unrouted))
            .collect(),
        limits_hit,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
        error: None,
        code: None,
        commands: Vec::new(),
    }
}

pub(super) fn timed_out_note(run: &Run) -> String {
    match run.timeout {
        Some(timeout) => format!(
            "timed out after {timeout}; the process tree was killed; raise `timeout`, or split the work"
        ),
        None => "timed out; the process tree was killed".into(),
    }
}

fn stopped_note(run: &Run) -> String {
    let what = match run.sandbox.spec.lifetime {
        Lifetime::OneShot => "a one-shot",
        Lifetime::Named => "an interactive command",
    };
    format!("the daemon was stopped, and {what} ends with it; run it again once the daemon is back")
}

fn failed_finish(run: &Run, failure: &Failure, named: &str, language: Option<Language>) -> Finish {
    let mut error = exec_error(failure, named);
    if let (Code::CommandNotFound, Some(language)) = (error.code, language) {
        error = language.missing(&run.sandbox);
    }
    // The numbers a shell gives for the same.
    let exit_code = match failure.kind {
        FailureKind::NotFound => 127,
        _ => 126,
    };
    Finish {
        state: RunState::Failed,
        exit_code: Some(exit_code),
        note: Some(error.message.clone()),
        error: Some(error.detail("run_id", run.id.to_string())),
        ..unknown(run, RunState::Failed)
    }
}

/// The detail of an error that ended a run together with its whole sandbox.
pub(super) const SANDBOX_KILLED: &str = "sandbox_killed";

fn broken_finish(run: &Run, error: &Error) -> Finish {
    let destroyed = run.sandbox.state() == SandboxState::Destroying;
    let (state, note) = match run.ending() {
        Ending::Own if destroyed => (RunState::Killed, "its sandbox was destroyed".into()),
        Ending::Destroyed => (RunState::Killed, "its sandbox was destroyed".into()),
        Ending::Expired => (RunState::Killed, "the time of its sandbox was up".into()),
        Ending::Reset => (RunState::Killed, "its sandbox was reset".into()),
        // A one-shot ends with its run; the other way round the command was wanted gone anyway.
        Ending::Cancelled => (RunState::Cancelled, "the caller cancelled it".into()),
        Ending::Killed => (RunState::Killed, "ended by `kill`".into()),
        Ending::Overdue => (RunState::TimedOut, timed_out_note(run)),
        Ending::Stopped => (RunState::Cancelled, stopped_note(run)),
        Ending::Own if error.code == Code::SandboxFailed => (RunState::Lost, lost_note("the sandbox died")),
        Ending::Own => (RunState::Lost, lost_note(&error.message)),
    };
    let note = match error.details.contains_key(SANDBOX_KILLED) {
        true => format!("{note}; the agent of the sandbox did not answer, so the whole sandbox was killed"),
        false => note,
    };
    let silent = error.code == Code::SandboxUnresponsive && state == RunState::Lost;
    let error = silent.then(|| error.clone().detail("run_id", run.id.to_string()));
    Finish { note: Some(note), error, ..unknown(run, state) }
}

/// The note of a run whose end nobody saw.
pub(crate) fn lost_note(why: &str) -> String {
    format!("{why} while the command ran; how it ended is not known, and it was not run again")
}

fn unknown(run: &Run, state: RunState) -> Finish {
    Finish {
        state,
        exit_code: None,
        signal: None,
        duration_ms: run.elapsed_ms(),
        cpu_us: None,
        peak_rss_kib: None,
        transferred: None,
        network: None,
        most_tasks: None,
        violations: Vec::new(),
        limits_hit: Vec::new(),
        note: None,
        error: None,
        code: None,
        commands: Vec::new(),
    }
}

fn violation(violation: &Violation) -> ViolationShape {
    let remedy = match violation.call.as_str() {
        "mount" | "umount2" | "pivot_root" | "move_mount" | "open_tree" | "fsopen" | "fsmount" => {
            "mounts are fixed in a sandbox; copy files into /workspace instead"
        }
        "ptrace" | "process_vm_readv" | "process_vm_writev" => {
            "tracing other processes is refused; print or log from the program instead"
        }
        "unshare" | "setns" | "clone3" | "clone" => {
            "namespaces inside the sandbox are refused; run the command directly"
        }
        "bpf" | "perf_event_open" | "init_module" | "finit_module" | "kexec_load" => {
            "the host's kernel cannot be reached from a sandbox; there is no way around it"
        }
        "io_uring_setup" => "io_uring is refused; programs fall back to ordinary reads and writes",
        "socket" => "only local sockets are allowed; a sandbox has no network but loopback",
        _ => "this system call is refused in a sandbox; use another way if the program failed",
    };
    ViolationShape {
        what: violation.call.clone(),
        count: violation.count,
        remedy: remedy.into(),
        shared: false,
    }
}
