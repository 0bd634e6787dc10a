//! Watching the size of volumes that no quota holds. At its limit a sandbox is stopped, and goes on
//! when there is room again. That is watching, not enforcing: a fast writer gets past the limit
//! before it is seen, and the containment report says so.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use isle_engine::values::{Address, ByteSize, SandboxId};

use super::{Inner, volume};

const INTERVAL: Duration = Duration::from_secs(2);

/// Watches until the sandbox is gone.
pub(super) fn start(inner: &Arc<Inner>, id: &SandboxId, volume: Address, limit: ByteSize) {
    let (inner, id) = (Arc::downgrade(inner), id.clone());
    tokio::spawn(async move {
        let mut stopped = false;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let Some(inner) = inner.upgrade() else { return };
            let Some(process) = inner.alive.process(&id) else { return };
            let Some(used) = volume::directory_usage(&inner, &volume).await else { continue };
            if used > limit.0 {
                if !stopped {
                    tracing::warn!(sandbox = %volume, used, limit = limit.0, "the sandbox is stopped: its disk limit is reached");
                }
                stopped = true;
                inner.alive.set_stopped(&id, true);
                signal_all(&process, libc::SIGSTOP);
            } else if stopped {
                stopped = false;
                inner.alive.set_stopped(&id, false);
                tracing::info!(sandbox = %volume, used, limit = limit.0, "the sandbox goes on: it is below its disk limit");
                signal_all(&process, libc::SIGCONT);
            }
        }
    });
}

/// Signals every process of a sandbox but its first: all of them descend from that one, which is the
/// first of their pid namespace. Who descends from whom everybody may read; which namespaces a process
/// is in, an ordinary user may not.
fn signal_all(first: &OwnedFd, signal: i32) {
    let Some(first) = pid_of(first) else { return };
    let mut parents = HashMap::new();
    for pid in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = pid.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if let Some(parent) = parent_of(pid) {
            parents.insert(pid, parent);
        }
    }
    for &pid in parents.keys() {
        let mut above = parents.get(&pid);
        while let Some(&parent) = above {
            if parent == first {
                // SAFETY: plain numbers; the process was in the sandbox a moment ago.
                unsafe { libc::kill(pid, signal) };
                break;
            }
            above = parents.get(&parent);
        }
    }
}

/// From the fourth field of `stat`; the second, in brackets, may hold anything.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    std::str::from_utf8(&stat[end + 1..]).ok()?.split_whitespace().nth(1)?.parse().ok()
}

fn pid_of(process: &OwnedFd) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok()).filter(|&pid| pid > 0)
}
