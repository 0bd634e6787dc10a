//! What all processes of the sandbox use together. CPU time and I/O of those that ended come up in the
//! accounts of whoever waited for them, and in the end in the agent's, so nothing is kept here.

use std::fs;
use std::time::Duration;

use isle_wire::Used;

use super::look::{self, Seen};
use super::memory;
use crate::family::own_pid;

/// Blocks as the kernel counts them for `getrusage`.
const BLOCK: u64 = 512;

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
    let bytes = |blocks: libc::c_long| u64::try_from(blocks).unwrap_or(0).saturating_mul(BLOCK);
    let start = (bytes(ended.ru_inblock), bytes(ended.ru_oublock));
    // The agent's own account has those that ended already.
    let others = seen.iter().filter(|one| one.pid != own_pid());
    let living = others.filter_map(|one| fs::read_to_string(format!("/proc/{}/io", one.pid)).ok());
    living.fold(start, |(read, written), text| {
        (read + field(&text, "read_bytes: "), written + field(&text, "write_bytes: "))
    })
}

fn field(text: &str, name: &str) -> u64 {
    // The line `cancelled_write_bytes` ends with the same words.
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_apart() {
        let text = "rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n";
        assert_eq!((field(text, "read_bytes: "), field(text, "write_bytes: ")), (4096, 8192));
        assert_eq!(field("", "read_bytes: "), 0);
    }
}
