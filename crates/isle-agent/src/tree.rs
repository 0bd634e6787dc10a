//! Which processes belong to a run, and ending all of them. Every run lives in a UTS namespace of
//! its own. That namespace is not there to give it a host name: it is a tag the kernel hands to
//! every descendant, double forks and new sessions included, and that nothing inside can take off.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Inode of a run's UTS namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tag(pub(crate) u64);

/// The tag of a process; `None` when it is gone or cannot be looked at.
pub(crate) fn tag_of(pid: i32) -> Option<Tag> {
    fs::metadata(format!("/proc/{pid}/ns/uts")).ok().map(|meta| Tag(meta.ino()))
}

/// Every process of the sandbox but the agent.
fn processes() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| pid > 1)
        .collect()
}

/// The living processes of a run. One that cannot be looked at (an unreadable program) counts when
/// no other tag claims it: it is better to end a stranger than to leave one behind.
pub(crate) fn members(tag: Tag, others: &[Tag]) -> Vec<i32> {
    processes()
        .into_iter()
        .filter(|&pid| !is_zombie(pid))
        .filter(|&pid| tag_of(pid).map_or_else(|| others.is_empty(), |found| found == tag))
        .collect()
}

fn is_zombie(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Sends a signal to every process of a run; returns how many there were.
pub(crate) fn signal_all(tag: Tag, others: &[Tag], signal: i32) -> usize {
    let members = members(tag, others);
    for &pid in &members {
        // SAFETY: plain numbers; a process that is gone meanwhile is no error.
        unsafe { libc::kill(pid, signal) };
    }
    members.len()
}

/// Ends every process of a run. Stopping all of them first keeps a fork bomb from outrunning the
/// killing: stopped processes hold their places below the limit on processes. Returns how many
/// were found at first.
pub(crate) async fn end(tag: Tag, others: &[Tag]) -> u32 {
    let first = members(tag, others).len();
    if first == 0 {
        return 0;
    }
    let mut stopped = 0;
    for _ in 0..8 {
        let now = signal_all(tag, others, libc::SIGSTOP);
        if now == stopped {
            break;
        }
        stopped = now;
    }
    while signal_all(tag, others, libc::SIGKILL) > 0 {
        // Killed processes need a moment to go; the reaper runs meanwhile.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    u32::try_from(first).unwrap_or(u32::MAX)
}
