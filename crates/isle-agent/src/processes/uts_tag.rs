//! Finding the processes of a run by its UTS namespace. The namespace is not there for a host name: it is a
//! tag that the kernel gives to every descendant, double forks and new sessions included, and that a
//! process without CAP_SYS_ADMIN cannot change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use isle_setup::threads;

use super::proc_tree::parent;
use crate::helper_process;
use crate::resource_usage::ResourceUsage;
use crate::run::{Run, RunKind};
use crate::serve::Shared;

/// Inode of a run's UTS namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tag(pub(crate) u64);

/// The tag of a process; `None` when it has exited or its entry cannot be read.
pub(super) fn tag_of(pid: i32) -> Option<Tag> {
    let shown = |entry: &Path| fs::metadata(entry.join("ns/uts")).ok().map(|meta| Tag(meta.ino()));
    // When the first thread has exited, the entries of the others still show the namespace.
    shown(Path::new(&format!("/proc/{pid}"))).or_else(|| shown(&threads::entry(pid)?))
}

/// Every process of the sandbox except the agent and its helpers.
pub(crate) fn sandbox_pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| pid > 1 && !helper_process::is_helper(pid))
        .collect()
}

/// The running processes of a run. One whose namespace cannot be read (an unreadable program) counts when
/// no other tag claims it: killing a foreign process is better than leaving one behind.
fn members(agent: &Shared, run: &Run, tag: Tag) -> Vec<i32> {
    // The kernel reuses the inode number of a namespace that is gone. A later run with this run's tag
    // therefore proves that no process of this run is left; processes with the tag belong to that run.
    if agent.runs.tag_was_reused(run) {
        return Vec::new();
    }
    let others = other_tags(agent, tag);
    sandbox_pids()
        .into_iter()
        .filter(|&pid| threads::living(pid).is_some())
        .filter(|&pid| nearest_tag(pid).map_or_else(|| others.is_empty(), |found| found == tag))
        .collect()
}

/// The tag of a process, or of its nearest ancestor whose namespace can be read.
fn nearest_tag(mut pid: i32) -> Option<Tag> {
    loop {
        if let Some(tag) = tag_of(pid) {
            return Some(tag);
        }
        pid = parent(pid).filter(|&parent| parent > 1)?;
    }
}

fn other_tags(agent: &Shared, own: Tag) -> Vec<Tag> {
    // Interpreters run for a long time: they must not protect a process that no run claims.
    let requested = agent.runs.active().into_iter().filter(|run| run.kind != RunKind::Interpreter);
    requested.filter_map(|run| run.processes.tag()).filter(|&tag| tag != own).collect()
}

/// Signals every process with a tag; returns how many there were.
pub(super) fn signal_all(agent: &Shared, run: &Run, tag: Tag, signal: i32) -> usize {
    let members = members(agent, run, tag);
    for &pid in &members {
        // SAFETY: plain numbers; a process that has exited meanwhile is no error.
        unsafe { libc::kill(pid, signal) };
    }
    members.len()
}

/// Kills every process with a tag. Stopping all of them first keeps a fork bomb from outrunning the
/// signals: stopped processes still count towards the limit on processes. Returns how many were found
/// at first.
pub(super) async fn kill_all(agent: &Shared, run: &Run, tag: Tag) -> u32 {
    let first = members(agent, run, tag).len();
    if first == 0 {
        return 0;
    }
    record_count(run, first);
    let mut stopped = 0;
    for _ in 0..8 {
        let now = signal_all(agent, run, tag, libc::SIGSTOP);
        if now == stopped {
            break;
        }
        stopped = now;
    }
    // No process waits for those that are killed, so their usage must be read now. That of the first
    // process comes when it is reaped.
    let others = members(agent, run, tag).into_iter().filter(|&pid| pid != run.pid);
    let usage = others.map(ResourceUsage::of_running).fold(ResourceUsage::ZERO, ResourceUsage::and);
    {
        let mut state = run.state.borrow_mut();
        state.others = state.others.and(usage);
    }
    while signal_all(agent, run, tag, libc::SIGKILL) > 0 {
        // Killed processes take a moment to exit; the reaper runs meanwhile.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    u32::try_from(first).unwrap_or(u32::MAX)
}

/// Records how many processes of a run were seen at one time.
fn record_count(run: &Run, processes: usize) {
    let count = u64::try_from(processes).unwrap_or(u64::MAX);
    // Processes of an interpreter, or of one of several commands, count for the run of the host.
    let requested = run.state.borrow().on_behalf_of.upgrade();
    match requested {
        Some(requested) => requested.state.borrow_mut().saw_tasks(count),
        None => run.state.borrow_mut().saw_tasks(count),
    }
}
