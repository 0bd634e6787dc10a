//! Running the attacks: each in a separate process with a timeout, so that one that is killed or hangs does
//! not affect the others.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::outcome::{NoCanary, Outcome, Verdict};
use crate::target::Target;
use crate::{Attack, attacks, canary, json, leftover, privileges, terminal};

/// Timeout of an attack.
const LIMIT: Duration = Duration::from_secs(30);

const USAGE: &str = "\
usage: isle-probe attack [--NAME=VALUE...]   run the attacks, one JSON line each
       isle-probe list                       name them
       isle-probe canary DIRECTORY SECRET    be the canary until standard input ends
       isle-probe terminal COMMAND...        run a command on a terminal of its own
       isle-probe leave MARK                 leave a process behind";

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    // Before the program opens any descriptor itself.
    let inherited = privileges::open_descriptors();
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    match mode.as_str() {
        "attack" => match Target::from_arguments(arguments) {
            Ok(target) => attack(&target, inherited),
            Err(odd) => usage(&format!("{odd:?} is not --NAME=VALUE")),
        },
        "list" => {
            for attack in attacks() {
                println!("{}", json::line(&[("name", attack.name), ("tries", attack.tries)]));
            }
            ExitCode::SUCCESS
        }
        "canary" => match (arguments.next(), arguments.next()) {
            (Some(directory), Some(secret)) => canary::serve(directory.as_ref(), &secret),
            _ => usage("missing directory and secret"),
        },
        "terminal" => terminal::run(arguments.collect()),
        "leave" => leftover::leave(),
        _ => usage("missing command"),
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("isle-probe: {problem}\n{USAGE}");
    ExitCode::from(2)
}

fn attack(target: &Target, inherited: Vec<i32>) -> ExitCode {
    privileges::remember_inherited(inherited);
    let (only, skip) = (target.names("only"), target.names("skip").unwrap_or_default());
    for attack in attacks() {
        if only.as_ref().is_some_and(|only| !only.contains(&attack.name)) || skip.contains(&attack.name) {
            continue;
        }
        let outcome = in_a_child(attack, target);
        let fields = [("name", attack.name), ("verdict", outcome.verdict.as_str()), ("seen", &outcome.seen)];
        let mut out = std::io::stdout().lock();
        // The reader is gone: stop.
        if writeln!(out, "{}", json::line(&fields)).and_then(|()| out.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Runs one attack in a child and reads its outcome from a pipe.
fn in_a_child(attack: &Attack, target: &Target) -> Outcome {
    let mut ends = [0; 2];
    if let Err(error) = library_call!(pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC)) {
        return Outcome::not_testable(format_args!("no pipe: {error}"));
    }
    // SAFETY: two fresh descriptors nobody else owns.
    let (reader, writer) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    // SAFETY: there is only one thread, so the child may run any code.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Outcome::not_testable(format_args!("no process: {}", std::io::Error::last_os_error()));
    }
    if child == 0 {
        drop(reader);
        library_call!(setpgid(0, 0)).ok();
        // A background process of a terminal must not be stopped by it.
        for signal in [libc::SIGTTOU, libc::SIGTTIN] {
            // SAFETY: ignores a signal.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        let outcome = (attack.run)(target).unwrap_or_else(|NoCanary(name)| {
            Outcome::not_testable(format_args!("there is no canary for --{name}"))
        });
        let mut pipe = std::fs::File::from(writer);
        let text = format!("{}\n{}", outcome.verdict.as_str(), outcome.seen);
        let told = pipe.write_all(text.as_bytes());
        // SAFETY: leaves without running anything of the parent's.
        unsafe { libc::_exit(i32::from(told.is_err())) };
    }
    drop(writer);
    let outcome = follow(std::fs::File::from(reader), child);
    // Kill what the attack left in its process group.
    library_call!(kill(-child, libc::SIGKILL)).ok();
    outcome
}

fn follow(mut pipe: std::fs::File, child: i32) -> Outcome {
    use std::os::fd::AsRawFd;
    let deadline = Instant::now() + LIMIT;
    let mut text = String::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let wait = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        if !matches!(library_call!(poll(&raw mut poll, 1, wait)), Ok(1)) {
            library_call!(kill(child, libc::SIGKILL)).ok();
            reap(child);
            return Outcome::not_testable(format_args!("timed out after {}s", LIMIT.as_secs()));
        }
        let mut piece = [0; 4096];
        match pipe.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => text.push_str(&String::from_utf8_lossy(&piece[..count])),
        }
    }
    let status = reap(child);
    if let Some((verdict, seen)) = text.split_once('\n')
        && let Some(verdict) = Verdict::from_name(verdict)
    {
        return Outcome { verdict, seen: seen.to_owned() };
    }
    match libc::WTERMSIG(status) {
        // A bug of the attack, not a result of the kernel.
        signal if !libc::WIFSIGNALED(status) || signal == libc::SIGABRT => {
            Outcome::not_testable(format_args!("exited with status {status} without output"))
        }
        libc::SIGSYS => Outcome::contained("SIGSYS"),
        libc::SIGSEGV => Outcome::contained("SIGSEGV"),
        libc::SIGKILL => Outcome::contained("SIGKILL"),
        signal => Outcome::contained(format_args!("signal {signal}")),
    }
}

fn reap(child: i32) -> i32 {
    let mut status = 0;
    library_call!(waitpid(child, &raw mut status, 0)).ok();
    status
}
