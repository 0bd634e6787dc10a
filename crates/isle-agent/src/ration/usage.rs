//! What all processes of the sandbox use together. CPU time and I/O of those that ended come up in the
//! accounts of whoever waited for them, and in the end in the agent's, so nothing is kept here.

use std::time::Duration;

use isle_wire::Used;

use super::look::{self, Seen};
use super::memory;
use crate::family::own_pid;
use crate::spent;

/// What is used now, and was so far.
pub(crate) fn now() -> Used {
    let seen = look::all();
    let time: Duration = seen.iter().map(|one| one.used + one.waited_for).sum();
    let threads = seen.iter().map(|one| one.threads).sum::<u64>();
    let (read, written) = transferred(&seen);
    Used {
        cpu_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        memory_bytes: memory::of(&seen),
        pids: u32::try_from(threads).unwrap_or(u32::MAX),
        io_read_bytes: read,
        io_write_bytes: written,
    }
}

/// Bytes from and to disks.
fn transferred(seen: &[Seen]) -> (u64, u64) {
    // SAFETY: an all-zero `rusage` is valid, and the call fills it.
    let ended = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let start = (spent::blocks(ended.ru_inblock), spent::blocks(ended.ru_oublock));
    // The agent's own account has those that ended already.
    let others = seen.iter().filter(|one| one.pid != own_pid());
    let living = others.filter_map(|one| spent::transferred_by(one.pid));
    living.fold(start, |(read, written), one| (read + one.read_bytes, written + one.written_bytes))
}
