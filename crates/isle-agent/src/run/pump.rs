//! The pump of a run: reads its output, enforces its deadline, and collects its result when it has exited.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use isle_setup::seccomp::call_name;
use isle_wire::{Ended, Violation};
use tokio::time::Instant as Deadline;

use super::{KillReason, Output, Run};
use crate::exceeded::exceeded;
use crate::output::Channel;
use crate::serve::Shared;
use crate::{disk_full, processes, unrouted};

/// How long output may stay open after every process of the run has exited.
const LINGER: Duration = Duration::from_millis(500);

/// Reads the output of a run until it has exited, and finishes it.
pub(super) async fn pump(agent: Shared, run: Rc<Run>, mut output: Output, deadline: Option<Deadline>) {
    let mut deadline = deadline;
    while run.state.borrow().exit.is_none() {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        let (exited, full) = {
            let state = run.state.borrow();
            (state.exit.is_some(), state.fresh.is_full())
        };
        if exited {
            break;
        }
        tokio::select! {
            () = changed => {}
            chunk = output.read(), if output.is_open() && !full => keep(&run, chunk),
            () = expired(deadline) => {
                deadline = None;
                run.state.borrow_mut().killed = Some(KillReason::TimedOut);
                processes::kill_all(&agent, &run).await;
            }
        }
    }
    let leftovers = processes::kill_leftovers(&agent, &run).await;
    drain(&run, &mut output).await;
    finish(&agent, &run, leftovers);
}

/// Resolves at the deadline, if there is one.
pub(crate) async fn expired(deadline: Option<Deadline>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Retains a chunk of output and passes it to the followers.
pub(crate) fn keep(run: &Run, chunk: Option<(Channel, Bytes)>) {
    let Some((channel, bytes)) = chunk else { return };
    let mut state = run.state.borrow_mut();
    match channel {
        Channel::Stdout => state.stdout.push(&bytes),
        Channel::Stderr => state.stderr.push(&bytes),
    }
    state.fresh.push(channel, bytes);
    state.trim();
    run.changed.notify_waiters();
}

/// Reads what is left in the pipes. Another process of the sandbox may have a copy of the other end, so
/// there is a timeout.
pub(crate) async fn drain(run: &Run, output: &mut Output) {
    let mut until = Deadline::now() + LINGER;
    while output.is_open() {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if run.state.borrow().fresh.is_full() {
            // A slow follower must not cause loss of output.
            changed.await;
            until = Deadline::now() + LINGER;
            continue;
        }
        let chunk = match within(until, output.read()).await {
            Some(chunk) => chunk,
            None => return,
        };
        keep(run, chunk);
    }
}

async fn within<T>(deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(deadline, work).await.ok()
}

/// Builds the result of a run that has exited and notifies the followers.
pub(crate) fn finish(agent: &Shared, run: &Run, leftovers: u32) {
    let mut state = run.state.borrow_mut();
    let Some(reaped) = state.exit else { return };
    let usage = reaped.usage.and(state.others);
    let violations = state
        .denied_calls
        .iter()
        .map(|(&number, &count)| Violation { call: call_name(number.into()), count })
        .collect();
    state.ended = Some(Ended {
        exit: reaped.exit,
        timed_out: state.killed == Some(KillReason::TimedOut),
        wall_us: u64::try_from(run.started.elapsed().as_micros()).unwrap_or(u64::MAX),
        cpu_us: usage.cpu_us,
        peak_rss_kib: usage.peak_rss_kib,
        stdout_bytes: state.stdout.total(),
        stderr_bytes: state.stderr.total(),
        leftovers,
        violations,
        full: disk_full::full_after(&agent.mode, reaped.exit),
        // A run that was killed on request did not exceed a limit.
        exceeded: if state.killed.is_none() { exceeded(&run.limits, &reaped) } else { None },
        context: state.context,
        killed_for_memory: state.killed_for_memory,
        unrouted: unrouted::attempts_before(&agent.mode, reaped.exit),
        transferred: usage.transferred,
        killed_for_processes: state.killed_for_processes,
        most_tasks: Some(state.most_tasks),
    });
    run.stdin.close();
    run.changed.notify_waiters();
}
