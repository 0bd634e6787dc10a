//! Watching the size of volumes that no quota holds. At its limit a sandbox is stopped, and goes on
//! when there is room again. That is watching, not enforcing: a fast writer gets past the limit
//! before it is seen, and the containment report says so.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use isle_engine::values::{ByteSize, SandboxId, SandboxName};

use super::{Inner, volume};

const INTERVAL: Duration = Duration::from_secs(2);

/// Watches until the sandbox is gone.
pub(super) fn start(inner: &Arc<Inner>, id: &SandboxId, volume: SandboxName, limit: ByteSize) {
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

/// Signals every process of a sandbox but its first.
fn signal_all(first: &OwnedFd, signal: i32) {
    let Some(first) = pid_of(first) else { return };
    let namespace = |pid: i32| fs::metadata(format!("/proc/{pid}/ns/pid")).map(|meta| meta.ino()).ok();
    let Some(own) = namespace(first) else { return };
    if namespace(rustix::process::getpid().as_raw_nonzero().get()) == Some(own) {
        // Not a sandbox with a pid namespace of its own: everybody would be signalled.
        return;
    }
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if pid != first && namespace(pid) == Some(own) {
            // SAFETY: plain numbers; the process was in the sandbox's pid namespace a moment ago.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

fn pid_of(process: &OwnedFd) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok()).filter(|&pid| pid > 0)
}
