//! Who goes first when the sandbox runs out of memory: commands before the agent. A command must not be
//! able to change its place, so it cannot write to `/proc`. The agent has its own entry open
//! from before, and takes a command's place for the moment in which it starts one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// The place of every command.
const COMMANDS: &[u8] = b"500";

/// Empty where it cannot be said.
static OWN: OnceLock<Own> = OnceLock::new();

#[derive(Debug)]
struct Own {
    entry: File,
    place: Vec<u8>,
}

/// Says that this agent has its entry open, once, before it serves.
pub(crate) fn settle(entry: File) {
    let mut place = vec![0; 16];
    // What cannot be read cannot be put back; then all keep the place they have.
    if let Ok(length) = entry.read_at(&mut place, 0) {
        place.truncate(length);
        OWN.get_or_init(|| Own { entry, place });
    }
}

/// Starts something in the place of a command.
pub(crate) fn as_command<T>(start: impl FnOnce() -> T) -> T {
    let Some(own) = OWN.get() else { return start() };
    // Without the right to say so nothing is lost but the order.
    own.entry.write_at(COMMANDS, 0).ok();
    let started = start();
    own.entry.write_at(&own.place, 0).ok();
    started
}
