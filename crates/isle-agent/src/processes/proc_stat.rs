//! The processes of the sandbox, as `/proc/PID/stat` describes them.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use isle_setup::threads;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::ProcessFinder;
use super::proc_tree::{children, descendants, own_pid};
use crate::helper_process;

/// A process at one point in time.
#[derive(Debug, Clone)]
pub(crate) struct ProcessStat {
    pub(crate) pid: i32,
    /// With the PID it identifies the process.
    pub(crate) start_time: u64,
    pub(crate) parent: i32,
    /// Of a thread that has not exited, if there is one.
    pub(crate) state: u8,
    /// CPU time of its own.
    pub(crate) cpu: Duration,
    /// CPU time of the children it has waited for, and of theirs.
    pub(crate) children_cpu: Duration,
    /// Bytes in memory, shared ones included.
    pub(crate) resident: u64,
    pub(crate) threads: u64,
}

/// Identifies a process, even if its PID is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessId {
    pub(crate) pid: i32,
    pub(crate) start_time: u64,
}

impl ProcessStat {
    pub(crate) fn id(&self) -> ProcessId {
        ProcessId { pid: self.pid, start_time: self.start_time }
    }

    /// CPU time of the children it has waited for, in microseconds.
    pub(crate) fn children_cpu_us(&self) -> u64 {
        u64::try_from(self.children_cpu.as_micros()).unwrap_or(u64::MAX)
    }

    /// Number of threads.
    pub(crate) fn threads(&self) -> u64 {
        self.threads
    }

    /// Whether it is neither stopped nor exited.
    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.state, b'T' | b't' | b'Z' | b'X')
    }

    /// Whether it is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Whether it has exited and was not reaped yet.
    pub(crate) fn has_exited(&self) -> bool {
        threads::is_ended(self.state)
    }
}

impl ProcessId {
    /// Signals this process and never another one that has its PID now. While a pidfd is open the PID is not
    /// reused, so a start time that is read after opening it is that of the process behind the pidfd.
    pub(crate) fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if read_stat(self.pid).is_some_and(|seen| seen.start_time == self.start_time) {
            // One that has exited meanwhile needs no signal.
            pidfd_send_signal(&pidfd, signal).ok();
        }
    }
}

/// The processes of the sandbox without the agent, its helpers and supervisors; parents before children.
pub(crate) fn sandbox_processes(finder: &ProcessFinder) -> Vec<ProcessStat> {
    in_order(pids(finder).into_iter().filter_map(read_stat_exactly).collect())
}

/// The same, with CPU times in ticks, which costs half as much.
pub(crate) fn sandbox_processes_coarse(finder: &ProcessFinder) -> Vec<ProcessStat> {
    in_order(pids(finder).into_iter().filter_map(read_stat).collect())
}

/// All processes including the agent, its helpers and supervisors, in no order.
pub(crate) fn all_processes(finder: &ProcessFinder) -> Vec<ProcessStat> {
    let pids = if finder.owns_all_processes() { visible() } else { descendants(own_pid()) };
    let others = pids.into_iter().filter(|&pid| pid != own_pid());
    std::iter::once(own_pid()).chain(others).filter_map(read_stat).collect()
}

fn pids(finder: &ProcessFinder) -> Vec<i32> {
    if finder.owns_all_processes() {
        visible().into_iter().filter(|&pid| pid > 1 && !helper_process::is_helper(pid)).collect()
    } else {
        // Children of the agent are supervisors and helpers.
        let own = children(own_pid());
        descendants(own_pid()).into_iter().filter(|pid| !own.contains(pid)).collect()
    }
}

/// All PIDs in `/proc`.
fn visible() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn read_stat_exactly(pid: i32) -> Option<ProcessStat> {
    read_stat(pid).map(|seen| ProcessStat { cpu: cpu_clock(pid).unwrap_or(seen.cpu), ..seen })
}

/// One process; `None` when it does not exist.
pub(crate) fn read_stat(pid: i32) -> Option<ProcessStat> {
    let seen = read(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)?;
    Some(if seen.has_exited() && seen.threads > 1 { by_threads(seen) } else { seen })
}

/// A process whose first thread has exited while others have not: state and memory are those of the other
/// threads. When they start and exit so fast that none is found, the process counts as running.
fn by_threads(seen: ProcessStat) -> ProcessStat {
    let pid = seen.pid;
    let stat = |thread: i32| fs::read(format!("/proc/{pid}/task/{thread}/stat")).ok();
    let living = threads::others(pid)
        .filter_map(|thread| read(thread, &stat(thread)?))
        .filter(|thread| !thread.has_exited());
    let (mut state, mut resident) = (None, 0);
    for thread in living {
        state = Some(thread.state);
        resident = thread.resident.max(resident);
        if thread.is_running() {
            break;
        }
    }
    ProcessStat { state: state.unwrap_or(b'R'), resident, ..seen }
}

/// Parses `stat`. The second field is the name, in parentheses, and may contain any byte.
fn read(pid: i32, stat: &[u8]) -> Option<ProcessStat> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields: Vec<&str> = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(ProcessStat {
        pid,
        start_time: number(19)?,
        parent: fields.get(1)?.parse().ok()?,
        state: *fields.first()?.as_bytes().first()?,
        cpu: ticks(number(11)? + number(12)?),
        children_cpu: ticks(number(13)? + number(14)?),
        resident: number(21)? * PAGE,
        threads: number(17)?,
    })
}

/// Page size and clock ticks of `/proc`, the same on every supported architecture.
const PAGE: u64 = 4096;
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * 10)
}

/// CPU time of a process from its clock: exact, where `stat` counts ticks.
pub(crate) fn cpu_clock(pid: i32) -> Option<Duration> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls fill what they are given, which outlives them.
    let read = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut time) == 0
    };
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    read.then(|| Duration::new(seconds, nanos))
}

/// Parents before children.
fn in_order(mut all: Vec<ProcessStat>) -> Vec<ProcessStat> {
    let parents: HashMap<i32, i32> = all.iter().map(|seen| (seen.pid, seen.parent)).collect();
    let depth = |pid: i32| {
        let above = std::iter::successors(parents.get(&pid), |&&parent| parents.get(&parent));
        // PIDs may be reused while `/proc` is read: this need not be a tree.
        above.take(parents.len()).count()
    };
    all.sort_by_cached_key(|seen| depth(seen.pid));
    all
}

#[cfg(test)]
impl ProcessStat {
    /// A sleeping process with one thread.
    pub(crate) fn of(pid: i32, parent: i32, start_time: u64) -> Self {
        Self {
            pid,
            start_time,
            parent,
            state: b'S',
            cpu: Duration::ZERO,
            children_cpu: Duration::ZERO,
            resident: 0,
            threads: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let line =
            b"7 (a) b (c\n) S 3 7 7 0 -1 4194560 0 0 0 0 12 3 40 5 20 0 1 0 777 9999 25 18446744073709551615";
        let seen = read(7, line).unwrap();
        assert_eq!((seen.pid, seen.parent, seen.state, seen.start_time), (7, 3, b'S', 777));
        assert_eq!((seen.cpu, seen.children_cpu), (Duration::from_millis(150), Duration::from_millis(450)));
        assert_eq!((seen.resident, seen.threads), (25 * 4096, 1));
        assert!(read(7, b"7 (cut off) S 3").is_none());
    }

    #[test]
    fn parents_come_before_children() {
        let one = |pid: i32, parent: i32| ProcessStat::of(pid, parent, 0);
        let order: Vec<i32> =
            in_order(vec![one(9, 4), one(4, 6), one(6, 1), one(2, 1)]).iter().map(|seen| seen.pid).collect();
        assert_eq!(order, [6, 2, 4, 9]);
        assert_eq!(in_order(vec![one(5, 6), one(6, 5)]).len(), 2, "a circle ends");
    }

    #[test]
    fn only_who_is_meant_is_signalled() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let who = read_stat_exactly(pid).unwrap().id();
        ProcessId { start_time: who.start_time + 1, ..who }.signal(Signal::KILL);
        assert!(child.try_wait().unwrap().is_none(), "somebody else who had the number");
        who.signal(Signal::KILL);
        assert!(!child.wait().unwrap().success());
        who.signal(Signal::KILL);
    }

    #[test]
    fn a_process_that_computes_is_seen_to() {
        let pid = own_pid();
        let before = read_stat_exactly(pid).unwrap();
        let mut after = before.clone();
        while after.cpu < before.cpu + Duration::from_millis(5) {
            std::hint::spin_loop();
            after = read_stat_exactly(pid).unwrap();
        }
        assert!(after.resident > 0);
        assert_eq!(after.start_time, before.start_time);
    }
}
