//! Pausing the sandbox: every process is stopped by SIGSTOP until it is resumed, and no command is started.
//! The agent itself keeps running, so that a paused sandbox can be inspected. Processes that were stopped
//! before stay stopped afterwards.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use isle_wire::{Failure, FailureKind};
use rustix::process::Signal;
use tokio::sync::Notify;

use crate::processes::proc_stat::{self, ProcessId, ProcessStat};
use crate::serve::Shared;

/// Timeout for a parent to stop before its children are signalled: one that does not is in a system call and
/// cannot react to a stopped child.
const PARENT_TIMEOUT: Duration = Duration::from_millis(20);
/// How often running processes are searched for before the rest is left to the next check.
const MAX_ROUNDS: usize = 50;
/// How often it is checked that all processes are stopped: a process can be resumed by its own timer.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Whether the sandbox is paused, and which processes that stopped, parents before children.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    stopped: RefCell<Option<Vec<ProcessId>>>,
    changed: Notify,
}

impl Pause {
    pub(crate) fn is_on(&self) -> bool {
        self.stopped.borrow().is_some()
    }

    /// Returns when the sandbox is not paused.
    pub(crate) async fn resumed(&self) {
        while self.is_on() {
            self.changed.notified().await;
        }
    }

    /// Fails while the sandbox is paused.
    pub(crate) fn check_not_paused(&self) -> Result<(), Failure> {
        if self.is_on() {
            return Err(Failure { kind: FailureKind::Paused, errno: 0, doing: "start a program".into() });
        }
        Ok(())
    }
}

/// Stops all processes, or resumes those that were stopped. Returns how many those are.
pub(crate) async fn set(agent: &Shared, on: bool) -> u64 {
    let pause = &agent.pause;
    if on {
        if !pause.is_on() {
            pause.stopped.replace(Some(Vec::new()));
            tokio::task::spawn_local(keep_stopped(agent.clone()));
        }
        stop_all(agent).await;
        let count = pause.stopped.borrow().as_ref().map_or(0, Vec::len);
        return u64::try_from(count).unwrap_or(u64::MAX);
    }
    let stopped = pause.stopped.take().unwrap_or_default();
    // Children first: a parent that is resumed before its child would see it stopped.
    for &process in stopped.iter().rev() {
        send(agent, process, Signal::CONT);
    }
    pause.changed.notify_waiters();
    u64::try_from(stopped.len()).unwrap_or(u64::MAX)
}

/// Checks regularly that all processes are stopped.
async fn keep_stopped(agent: Shared) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            () = agent.pause.changed.notified() => {}
        }
        if !agent.pause.is_on() {
            return;
        }
        stop_all(&agent).await;
    }
}

/// Returns when all processes were signalled: one with a pending SIGSTOP executes no more code.
async fn stop_all(agent: &Shared) {
    let mut signalled: HashSet<i32> = HashSet::new();
    for _ in 0..MAX_ROUNDS {
        let seen = proc_stat::sandbox_processes_coarse(&agent.mode.processes);
        let running: Vec<&ProcessStat> =
            seen.iter().filter(|one| one.is_running() && !signalled.contains(&one.pid)).collect();
        if running.is_empty() || !agent.pause.is_on() {
            return;
        }
        let parents: HashSet<i32> = running.iter().map(|one| one.parent).collect();
        let mut awaited: HashSet<i32> = HashSet::new();
        for one in &running {
            // Parents come first: none may see a stopped child, because it would react to it.
            if awaited.remove(&one.parent) {
                stopped_or_exited(one.parent).await;
            }
            send(agent, one.id(), Signal::STOP);
            signalled.insert(one.pid);
            if parents.contains(&one.pid) {
                awaited.insert(one.pid);
            }
        }
        if let Some(stopped) = agent.pause.stopped.borrow_mut().as_mut() {
            let known: HashSet<i32> = stopped.iter().map(|process| process.pid).collect();
            stopped
                .extend(running.iter().map(|one| one.id()).filter(|process| !known.contains(&process.pid)));
        }
        // Processes that were forked meanwhile are found in the next round.
    }
}

/// Signals a process. Where the agent does not own all processes the PID may have been reused by a process
/// of the host; where it does, a process that reused it has to stop too, and no PID is reused while all are
/// stopped.
fn send(agent: &Shared, process: ProcessId, signal: Signal) {
    if !agent.mode.processes.owns_all_processes() {
        return process.signal(signal);
    }
    // SAFETY: plain numbers; a process that has exited meanwhile is no error.
    unsafe { libc::kill(process.pid, signal.as_raw()) };
}

/// Waits until a process has stopped or exited, with a timeout.
async fn stopped_or_exited(pid: i32) {
    let begun = Instant::now();
    while proc_stat::read_stat(pid).is_some_and(|seen| seen.is_running()) && begun.elapsed() < PARENT_TIMEOUT
    {
        // The reaper and other streams run meanwhile.
        tokio::task::yield_now().await;
    }
}
