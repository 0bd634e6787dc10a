//! Watching the size of volumes without a quota, unlinked files included. A sandbox over its limit is stopped
//! with `SIGSTOP`, and resumed when it is below. This is watching, not enforcing: a fast writer exceeds the
//! limit before it is measured, and the containment report says so. A tree that changes faster than it can be
//! measured is measured while the sandbox is stopped.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use isle_core::values::{Address, ByteSize, SandboxId};

use super::unlinked::Unlinked;
use super::{Inner, MEASURED, volume};

const INTERVAL: Duration = Duration::from_secs(2);
/// How long a volume may take to be counted while its sandbox is stopped. One that takes longer is over its
/// limit, as far as can be known.
const STOPPED: Duration = Duration::from_secs(120);

/// Watches until the sandbox is gone.
pub(super) fn start(inner: &Arc<Inner>, id: &SandboxId, volume: Address, limit: ByteSize) {
    let (inner, id) = (Arc::downgrade(inner), id.clone());
    tokio::spawn(async move {
        let mut stopped = false;
        let mut unlinked = Unlinked::default();
        loop {
            tokio::time::sleep(INTERVAL).await;
            let Some(inner) = inner.upgrade() else { return };
            let Some(process) = inner.alive.process(&id) else { return };
            let longest = if stopped { STOPPED } else { MEASURED };
            let Some(mut named) = volume::directory_usage(&inner, &volume, longest).await else { continue };
            if !named.is_whole && !stopped {
                tracing::info!(sandbox = %volume, "stopped the sandbox: its files change faster than they can be measured");
                stop_all(&process);
                stopped = true;
                inner.alive.set_stopped(&id, true);
                let Some(again) = volume::directory_usage(&inner, &volume, STOPPED).await else { continue };
                named = again;
            }
            let named = if named.is_whole { named.bytes } else { u64::MAX };
            let bytes = unlinked.look(&process).await;
            inner.alive.set_unlinked(&id, bytes);
            let used = named.saturating_add(bytes);
            if used > limit.0 {
                if !stopped {
                    tracing::warn!(sandbox = %volume, used, limit = limit.0, "stopped the sandbox: it is over its disk limit");
                }
                stopped = true;
                inner.alive.set_stopped(&id, true);
                stop_all(&process);
            } else if stopped {
                stopped = false;
                inner.alive.set_stopped(&id, false);
                tracing::info!(sandbox = %volume, used, limit = limit.0, "resumed the sandbox: it is below its disk limit");
                signal_all(&process, libc::SIGCONT);
            }
        }
    });
}

/// Twice, for those who were made while the others were stopped.
fn stop_all(first: &OwnedFd) {
    for _ in 0..2 {
        signal_all(first, libc::SIGSTOP);
    }
}

/// Signals every process of a sandbox but its first: all of them descend from that one, which is the
/// first of their pid namespace. Who descends from whom everybody may read; which namespaces a process
/// is in, an ordinary user may not.
fn signal_all(first: &OwnedFd, signal: i32) {
    let own = pid_of(first);
    for pid in descendants(first).into_iter().filter(|&pid| Some(pid) != own) {
        // SAFETY: plain numbers; the process was in the sandbox a moment ago.
        unsafe { libc::kill(pid, signal) };
    }
}

/// The first process of a sandbox and all that descend from it.
pub(super) fn descendants(first: &OwnedFd) -> Vec<i32> {
    let Some(first) = pid_of(first) else { return Vec::new() };
    let mut found = vec![first];
    let mut parents = HashMap::new();
    for pid in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = pid.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if let Some(parent) = parent_of(pid) {
            parents.insert(pid, parent);
        }
    }
    // Numbers change hands while they are read: there is no telling that this is a tree.
    let descends = |pid: i32| {
        let above = std::iter::successors(parents.get(&pid), |parent| parents.get(*parent));
        above.take(parents.len()).any(|&parent| parent == first)
    };
    found.extend(parents.keys().copied().filter(|&pid| descends(pid)));
    found
}

/// From the fourth field of `stat`; the second, in brackets, may hold anything.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    std::str::from_utf8(&stat[end + 1..]).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// The number of a process that has not been waited for.
pub(super) fn pid_of(process: &OwnedFd) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok()).filter(|&pid| pid > 0)
}
