//! Signalling all descendants of this process by walking `/proc`. This is complete because the process is a
//! subreaper: what a double fork or a new session detaches from its parent is reparented to this process
//! and stays a descendant.

use std::time::Duration;

use super::proc_tree::{descendants, own_pid};

/// Signals every descendant that exists now.
pub(super) fn signal_all(signal: i32) {
    for pid in descendants(own_pid()) {
        // SAFETY: plain numbers; descendants are reaped by this process or by each other, and the kernel
        // reuses a PID last.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Kills all descendants until none is left. Calls `reap` between rounds, which returns whether a child is
/// left.
pub(super) fn kill_all(mut reap: impl FnMut() -> bool) {
    while reap() {
        stop_all();
        signal_all(libc::SIGKILL);
        // Killed processes take a moment to exit.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stopped processes cannot fork while the others are killed.
fn stop_all() {
    let mut stopped = 0;
    for _ in 0..8 {
        let now = descendants(own_pid()).len();
        if now == stopped {
            return;
        }
        stopped = now;
        signal_all(libc::SIGSTOP);
    }
}
