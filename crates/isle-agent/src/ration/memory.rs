//! How much memory a sandbox has, and what happens at the limit. What every process has resident, shared
//! pages counted by each, is quick to read and never too little. Only when that is over the limit it is
//! looked at closely: first without the programs' own files, then with shared pages divided up. The largest process goes, as it would if the kernel kept the limit.

use std::fs;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use rustix::process::Signal;

use super::Effort;
use super::look::{Seen, Who};
use crate::serve::Shared;
use crate::{place, tree};

/// More than the CPUs of a sandbox fill in a second, as far as Isle has seen.
const FASTEST: u64 = 4 << 30;

/// How long the next one is spared while the last goes.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is known of a sandbox's memory.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    root_in_memory: bool,
    /// When to look closely again.
    closer_at: Option<Instant>,
    /// Who was killed last, and when: until it is gone, what it had is not free.
    dying: Option<(Who, Instant)>,
}

/// One process, looked at closely.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Close {
    own: u64,
    shared: u64,
}

impl Memory {
    pub(super) fn new(limit: u64, root_in_memory: bool) -> Self {
        Self { limit, root_in_memory, closer_at: None, dying: None }
    }

    /// Looks, and kills the largest process when there is too much. Says when to look again: before the
    /// room that is left could have been filled.
    pub(super) fn keep(&mut self, agent: &Shared, seen: &[Seen], now: Instant) -> Duration {
        if self.is_dying(seen, now) {
            return super::HASTE;
        }
        let files = files(self.root_in_memory);
        let at_most = seen.iter().map(|seen| seen.resident).sum::<u64>() + files;
        if at_most <= self.limit {
            self.closer_at = None;
            return until_full(self.limit - at_most);
        }
        let at_most = total(seen.iter().map(whole), files);
        if at_most <= self.limit {
            self.closer_at = None;
            return until_full(self.limit - at_most);
        }
        if let Some(at) = self.closer_at.filter(|&at| at > now) {
            return at - now;
        }
        let spent = Effort::begin();
        let close: Vec<(&Seen, Close)> = seen.iter().map(|seen| (seen, closely(seen))).collect();
        let used = total(close.iter().map(|(_, close)| *close), files);
        if used <= self.limit {
            // Pages that are shared now may be copied later without anybody having more of them, so that
            // only looking closely tells; and that takes its time.
            let close_by = used > self.limit / 10 * 9;
            let effort = if close_by { super::EFFORT / 3 } else { super::EFFORT };
            let pause = until_full(self.limit - used).max(spent.spent() * effort);
            self.closer_at = Some(now + pause);
            return pause;
        }
        self.closer_at = None;
        let largest = close.iter().max_by_key(|(_, close)| close.own + close.shared);
        if let Some(&(largest, _)) = largest {
            if let Some(run) = tree::run_of(agent, largest.pid) {
                run.state.borrow_mut().killed_for_memory += 1;
            }
            largest.who().signal(Signal::KILL);
            self.dying = Some((largest.who(), now));
        }
        super::HASTE
    }

    /// Whether somebody who was killed still has memory. One that does not go for long, because the kernel
    /// waits for something, must not keep the others.
    fn is_dying(&mut self, seen: &[Seen], now: Instant) -> bool {
        self.dying = self.dying.filter(|&(who, since)| {
            let has_memory = |one: &Seen| one.who() == who && !matches!(one.state, b'Z' | b'X');
            now - since < PATIENCE && seen.iter().any(has_memory)
        });
        self.dying.is_some()
    }
}

/// What processes have, as exactly as can be had cheaply: without their programs' files.
pub(super) fn of(seen: &[Seen]) -> u64 {
    total(seen.iter().map(whole), files(false))
}

/// Bytes of files that are in memory, and of System V segments.
fn files(root_in_memory: bool) -> u64 {
    // Without namespaces both are the host's, and closed to the sandbox.
    if place::private().is_some() {
        return 0;
    }
    // A one-shot's /dev/shm is a part of its root.
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

/// How long filling that much takes at least.
fn until_full(bytes: u64) -> Duration {
    Duration::from_micros(bytes / (FASTEST / 1_000_000))
}

/// What a process has without its program's files, all that it shares included.
fn whole(seen: &Seen) -> Close {
    let text = fs::read_to_string(format!("/proc/{}/status", seen.pid)).unwrap_or_default();
    parts(&text, "RssAnon:", "RssShmem:").unwrap_or(Close { own: seen.resident, shared: 0 })
}

/// A process's part of what it has, shared pages divided among those who share them. One that cannot be
/// looked at counts whole.
fn closely(seen: &Seen) -> Close {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", seen.pid)).unwrap_or_default();
    parts(&text, "Pss_Anon:", "Pss_Shmem:").unwrap_or(Close { own: seen.resident, shared: 0 })
}

fn parts(text: &str, own: &str, shared: &str) -> Option<Close> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some(Close { own: field(own)?, shared: field(shared)? })
}

/// Shared memory is in files or segments too, as a rule, and is not counted twice.
fn total(all: impl Iterator<Item = Close>, files: u64) -> u64 {
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
        assert_eq!(parts(text), Some(Close { own: 300 << 10, shared: 50 << 10 }));
        assert_eq!(parts("Rss: 900 kB\n"), None, "an old kernel, or a process nobody may look at");
    }

    #[test]
    fn segments_are_added_up() {
        let table = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n         0          0   600             167772160     2     2      1  1000  1000  1000  1000 1 0 1 4096 0\n         0          1   600 1 2 2 1 0 0 0 0 1 0 1 8192 0\n";
        assert_eq!(segments(table), 12288);
        assert_eq!(segments(""), 0);
    }

    #[test]
    fn what_is_in_a_file_and_mapped_counts_once() {
        let close = |own, shared| Close { own, shared };
        assert_eq!(total([close(10, 5), close(20, 5)].into_iter(), 10), 40);
        assert_eq!(total([close(10, 0)].into_iter(), 7), 17);
        assert_eq!(total([close(0, 9)].into_iter(), 7), 9);
    }

    #[test]
    fn the_less_room_the_sooner_it_is_looked_at_again() {
        assert_eq!(until_full(0), Duration::ZERO);
        assert!(until_full(64 << 20) < Duration::from_millis(20));
        assert!(until_full(1 << 30) > super::super::HASTE);
    }
}
