//! The memory limit of a sandbox. The resident size of every process, with shared pages counted for each,
//! is quick to read and never too low. Only when that is above the limit it is measured more exactly: first
//! without file pages, then with shared pages divided among their users. The largest process is killed, as
//! the OOM killer would do.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use isle_setup::threads;
use rustix::fs::statvfs;
use rustix::process::Signal;

use super::PollCost;
use crate::guest_paths::GuestPaths;
use crate::processes;
use crate::processes::proc_stat::{ProcessId, ProcessStat};
use crate::serve::Shared;

/// More bytes than the CPUs of a sandbox can fill in a second, as far as measured.
const FASTEST: u64 = 4 << 30;

/// Timeout for a killed process to exit before the next one is killed.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// State of the watcher.
#[derive(Debug)]
pub(super) struct MemoryWatcher {
    limit: u64,
    root_in_memory: bool,
    /// When to measure exactly again.
    exact_at: Option<Instant>,
    /// The process that was killed last, and when: its memory is not free before it has exited.
    dying: Option<(ProcessId, Instant)>,
}

/// Memory of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ProcessMemory {
    own: u64,
    shared: u64,
}

impl MemoryWatcher {
    pub(super) fn new(limit: u64, root_in_memory: bool) -> Self {
        Self { limit, root_in_memory, exact_at: None, dying: None }
    }

    /// Kills the largest process when the limit is exceeded. Returns when to poll again: before the rest
    /// can be filled.
    pub(super) fn enforce(&mut self, agent: &Shared, seen: &[ProcessStat], now: Instant) -> Duration {
        if self.is_dying(seen, now) {
            return super::MIN_INTERVAL;
        }
        let files = files(&agent.mode.paths, self.root_in_memory);
        let at_most = seen.iter().map(|seen| seen.resident).sum::<u64>() + files;
        if at_most <= self.limit {
            self.exact_at = None;
            return until_full(self.limit - at_most);
        }
        let at_most = total(seen.iter().map(whole), files);
        if at_most <= self.limit {
            self.exact_at = None;
            return until_full(self.limit - at_most);
        }
        if let Some(at) = self.exact_at.filter(|&at| at > now) {
            return at - now;
        }
        let cost = PollCost::begin();
        let close: Vec<(&ProcessStat, ProcessMemory)> =
            seen.iter().map(|seen| (seen, proportional(seen))).collect();
        let used = total(close.iter().map(|(_, close)| *close), files);
        if used <= self.limit {
            // Pages that are shared now may be copied later without any process growing, so that only an
            // exact measurement shows it; and that is expensive.
            let close_by = used > self.limit / 10 * 9;
            let factor = if close_by { super::COST_FACTOR / 3 } else { super::COST_FACTOR };
            let pause = until_full(self.limit - used).max(cost.elapsed() * factor);
            self.exact_at = Some(now + pause);
            return pause;
        }
        self.exact_at = None;
        let largest = close.iter().max_by_key(|(_, close)| close.own + close.shared);
        if let Some(&(largest, _)) = largest {
            if let Some(run) = processes::run_of(agent, largest.pid) {
                run.state.borrow_mut().killed_for_memory += 1;
            }
            largest.id().signal(Signal::KILL);
            self.dying = Some((largest.id(), now));
        }
        super::MIN_INTERVAL
    }

    /// Whether a killed process still has memory. One that does not exit for long, because it is blocked in
    /// the kernel, must not protect the others.
    fn is_dying(&mut self, seen: &[ProcessStat], now: Instant) -> bool {
        self.dying = self.dying.filter(|&(who, since)| {
            let has_memory = |one: &ProcessStat| one.id() == who && !one.has_exited();
            now - since < EXIT_TIMEOUT && seen.iter().any(has_memory)
        });
        self.dying.is_some()
    }
}

/// Memory of processes without file pages, as exactly as is cheap.
pub(crate) fn of(paths: &GuestPaths, seen: &[ProcessStat]) -> u64 {
    total(seen.iter().map(whole), files(paths, false))
}

/// Bytes of files that are in memory, and of System V segments.
fn files(paths: &GuestPaths, root_in_memory: bool) -> u64 {
    // Without a root of its own both are the host's, and not accessible to the sandbox.
    if !paths.is_own_root() {
        return 0;
    }
    // In a one-shot sandbox /dev/shm is a part of the root.
    let path = if root_in_memory { "/" } else { "/dev/shm" };
    let files = statvfs(path)
        .map_or(0, |room| room.f_blocks.saturating_sub(room.f_bfree).saturating_mul(room.f_frsize));
    files + segments(&fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default())
}

/// Resident bytes of all segments: the column before the last.
fn segments(table: &str) -> u64 {
    let rows = table.lines().skip(1);
    rows.filter_map(|row| row.split_ascii_whitespace().rev().nth(1)?.parse::<u64>().ok()).sum()
}

/// The minimum time to fill that much.
fn until_full(bytes: u64) -> Duration {
    Duration::from_micros(bytes / (FASTEST / 1_000_000))
}

/// Memory of a process without file pages, shared pages included.
fn whole(seen: &ProcessStat) -> ProcessMemory {
    shown(seen, "status", ["RssAnon:", "RssShmem:"])
}

/// Proportional memory of a process: shared pages divided among their users. When it cannot be read, the
/// resident size counts.
fn proportional(seen: &ProcessStat) -> ProcessMemory {
    shown(seen, "smaps_rollup", ["Pss_Anon:", "Pss_Shmem:"])
}

fn shown(seen: &ProcessStat, file: &str, [own, shared]: [&str; 2]) -> ProcessMemory {
    let read = |entry: &Path| parts(&fs::read_to_string(entry.join(file)).ok()?, own, shared);
    // When the first thread has exited, the entries of the others still show the memory.
    read(Path::new(&format!("/proc/{}", seen.pid)))
        .or_else(|| read(&threads::entry(seen.pid)?))
        .unwrap_or(ProcessMemory { own: seen.resident, shared: 0 })
}

fn parts(text: &str, own: &str, shared: &str) -> Option<ProcessMemory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some(ProcessMemory { own: field(own)?, shared: field(shared)? })
}

/// Shared memory is usually also in files or segments, and is not counted twice.
fn total(all: impl Iterator<Item = ProcessMemory>, files: u64) -> u64 {
    let (own, shared) = all.fold((0, 0), |(own, shared), one| (own + one.own, shared + one.shared));
    own + shared.max(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_from_what_the_kernel_says() {
        let text = "5555-7ffe ---p 0 00:00 0 [rollup]\nRss: 900 kB\nPss: 500 kB\nPss_Anon:  300 kB\nPss_File: 150 kB\nPss_Shmem:   50 kB\n";
        let parts = |text: &str| parts(text, "Pss_Anon:", "Pss_Shmem:");
        assert_eq!(parts(text), Some(ProcessMemory { own: 300 << 10, shared: 50 << 10 }));
        assert_eq!(parts("Rss: 900 kB\n"), None, "an old kernel, or an unreadable process");
    }

    #[test]
    fn segments_are_added_up() {
        let table = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n         0          0   600             167772160     2     2      1  1000  1000  1000  1000 1 0 1 4096 0\n         0          1   600 1 2 2 1 0 0 0 0 1 0 1 8192 0\n";
        assert_eq!(segments(table), 12288);
        assert_eq!(segments(""), 0);
    }

    #[test]
    fn what_is_in_a_file_and_mapped_counts_once() {
        let close = |own, shared| ProcessMemory { own, shared };
        assert_eq!(total([close(10, 5), close(20, 5)].into_iter(), 10), 40);
        assert_eq!(total([close(10, 0)].into_iter(), 7), 17);
        assert_eq!(total([close(0, 9)].into_iter(), 7), 9);
    }

    #[test]
    fn the_nearer_the_limit_the_sooner_the_next_poll() {
        assert_eq!(until_full(0), Duration::ZERO);
        assert!(until_full(64 << 20) < Duration::from_millis(20));
        assert!(until_full(1 << 30) > super::super::MIN_INTERVAL);
    }
}
