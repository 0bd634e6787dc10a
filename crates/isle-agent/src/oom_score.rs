//! The order of the kernel's OOM killer: commands before the agent. A command must not be able to change its
//! own score, so it cannot write to `/proc`. The agent keeps its own `oom_score_adj` open from before that,
//! and takes the score of a command while it starts one, which the child inherits.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The score of every command.
const COMMANDS: &[u8] = b"500";

/// The agent's own `oom_score_adj`.
#[derive(Debug)]
pub(crate) struct OomScore {
    entry: File,
    own: Vec<u8>,
}

impl OomScore {
    /// Takes over the open file. `None` when it cannot be read: then it could not be restored either, and
    /// all processes keep the score they have.
    pub(crate) fn new(entry: File) -> Option<Self> {
        let mut own = vec![0; 16];
        let length = entry.read_at(&mut own, 0).ok()?;
        own.truncate(length);
        Some(Self { entry, own })
    }
}

/// Starts a process with the score of a command.
pub(crate) fn as_command<T>(score: Option<&OomScore>, start: impl FnOnce() -> T) -> T {
    let Some(score) = score else { return start() };
    // Without the permission to change it only the order is lost.
    score.entry.write_at(COMMANDS, 0).ok();
    let started = start();
    score.entry.write_at(&score.own, 0).ok();
    started
}
