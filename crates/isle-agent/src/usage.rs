//! Resource usage of all processes of the sandbox. CPU time and I/O of exited processes are included in
//! those of the parents that waited for them, and finally in the agent's own, so nothing is recorded here.

use std::time::Duration;

use isle_wire::Used;

use crate::limits_watcher::memory;
use crate::mode::Mode;
use crate::processes::proc_stat::{self, ProcessStat};
use crate::processes::proc_tree::own_pid;
use crate::resource_usage;

/// The usage now.
pub(crate) fn now(mode: &Mode) -> Used {
    let seen = proc_stat::all_processes(&mode.processes);
    let time: Duration = seen.iter().map(|one| one.cpu + one.children_cpu).sum();
    let threads = seen.iter().map(|one| one.threads).sum::<u64>();
    let (read, written) = transferred(&seen);
    Used {
        cpu_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        memory_bytes: memory::of(&mode.paths, &seen),
        pids: u32::try_from(threads).unwrap_or(u32::MAX),
        io_read_bytes: read,
        io_write_bytes: written,
    }
}

/// Disk I/O: bytes read and written.
fn transferred(seen: &[ProcessStat]) -> (u64, u64) {
    // SAFETY: an all-zero `rusage` is valid, and the call fills it.
    let exited = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let start = (resource_usage::blocks(exited.ru_inblock), resource_usage::blocks(exited.ru_oublock));
    // The agent's own counters include those of exited processes already.
    let others = seen.iter().filter(|one| one.pid != own_pid());
    let running = others.filter_map(|one| resource_usage::transferred_by(one.pid));
    running.fold(start, |(read, written), one| (read + one.read_bytes, written + one.written_bytes))
}
