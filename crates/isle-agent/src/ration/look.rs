//! Everybody in the sandbox, as `/proc` shows them.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::family::{children, descendants, own_pid};
use crate::place;

/// A process, when somebody looked.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) pid: i32,
    /// When it began: with its number, who it is.
    pub(super) began: u64,
    pub(crate) parent: i32,
    pub(super) state: u8,
    /// CPU time of its own.
    pub(super) used: Duration,
    /// CPU time of the children it has waited for, and of theirs.
    pub(super) waited_for: Duration,
    /// Bytes in memory, shared ones included.
    pub(super) resident: u64,
    pub(super) threads: u64,
}

/// Who a process is: its number, and when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) pid: i32,
    pub(super) began: u64,
}

impl Seen {
    pub(crate) fn who(&self) -> Who {
        Who { pid: self.pid, began: self.began }
    }

    /// CPU time of the children it has waited for, in microseconds.
    pub(crate) fn waited_for_us(&self) -> u64 {
        u64::try_from(self.waited_for.as_micros()).unwrap_or(u64::MAX)
    }

    /// How many the kernel counts it for.
    pub(crate) fn threads(&self) -> u64 {
        self.threads
    }

    /// Whether it is neither stopped nor gone.
    pub(crate) fn runs(&self) -> bool {
        !matches!(self.state, b'T' | b't' | b'Z' | b'X')
    }
}

impl Who {
    /// Signals this process and none that has its number now: without namespaces that could be anybody's.
    /// One that is held by a descriptor keeps its number, so what is read after holding it is about it.
    pub(crate) fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if roughly(self.pid).is_some_and(|seen| seen.began == self.began) {
            // One that has ended meanwhile needs no signal.
            pidfd_send_signal(&held, signal).ok();
        }
    }
}

/// Everybody but the agent, and the supervisors it has where there are no namespaces; parents before
/// children.
pub(super) fn everybody() -> Vec<Seen> {
    in_order(pids().into_iter().filter_map(look_at).collect())
}

/// The same, with CPU times in ticks: half the work.
pub(crate) fn everybody_roughly() -> Vec<Seen> {
    in_order(pids().into_iter().filter_map(roughly).collect())
}

/// Really everybody, in no order: the agent and supervisors, too.
pub(super) fn all() -> Vec<Seen> {
    let pids = if place::private().is_some() { descendants(own_pid()) } else { visible() };
    let others = pids.into_iter().filter(|&pid| pid != own_pid());
    std::iter::once(own_pid()).chain(others).filter_map(roughly).collect()
}

fn pids() -> Vec<i32> {
    if place::private().is_some() {
        let supervisors = children(own_pid());
        descendants(own_pid()).into_iter().filter(|pid| !supervisors.contains(pid)).collect()
    } else {
        visible().into_iter().filter(|&pid| pid > 1).collect()
    }
}

/// Whom `/proc` shows.
fn visible() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn look_at(pid: i32) -> Option<Seen> {
    roughly(pid).map(|seen| Seen { used: clock(pid).unwrap_or(seen.used), ..seen })
}

/// One process, as `stat` has it.
pub(crate) fn roughly(pid: i32) -> Option<Seen> {
    read(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// From `stat`. The name comes second, in brackets, and may hold anything.
fn read(pid: i32, stat: &[u8]) -> Option<Seen> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields: Vec<&str> = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Seen {
        pid,
        began: number(19)?,
        parent: fields.get(1)?.parse().ok()?,
        state: *fields.first()?.as_bytes().first()?,
        used: ticks(number(11)? + number(12)?),
        waited_for: ticks(number(13)? + number(14)?),
        resident: number(21)? * PAGE,
        threads: number(17)?,
    })
}

/// Pages and ticks as `/proc` counts them on every architecture Isle is made for.
const PAGE: u64 = 4096;
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * 10)
}

/// The CPU clock of a process: exact, where `stat` counts in ticks.
pub(crate) fn clock(pid: i32) -> Option<Duration> {
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
fn in_order(mut all: Vec<Seen>) -> Vec<Seen> {
    let parents: HashMap<i32, i32> = all.iter().map(|seen| (seen.pid, seen.parent)).collect();
    let depth = |pid: i32| {
        let above = std::iter::successors(parents.get(&pid), |&&parent| parents.get(&parent));
        // Numbers change hands while they are read: there is no telling that this is a tree.
        above.take(parents.len()).count()
    };
    all.sort_by_cached_key(|seen| depth(seen.pid));
    all
}

#[cfg(test)]
impl Seen {
    /// Somebody who has one thread and sleeps.
    pub(super) fn of(pid: i32, parent: i32, began: u64) -> Self {
        Self {
            pid,
            began,
            parent,
            state: b'S',
            used: Duration::ZERO,
            waited_for: Duration::ZERO,
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
        assert_eq!((seen.pid, seen.parent, seen.state, seen.began), (7, 3, b'S', 777));
        assert_eq!((seen.used, seen.waited_for), (Duration::from_millis(150), Duration::from_millis(450)));
        assert_eq!((seen.resident, seen.threads), (25 * 4096, 1));
        assert!(read(7, b"7 (cut off) S 3").is_none());
    }

    #[test]
    fn parents_come_before_children() {
        let one = |pid: i32, parent: i32| Seen::of(pid, parent, 0);
        let order: Vec<i32> =
            in_order(vec![one(9, 4), one(4, 6), one(6, 1), one(2, 1)]).iter().map(|seen| seen.pid).collect();
        assert_eq!(order, [6, 2, 4, 9]);
        assert_eq!(in_order(vec![one(5, 6), one(6, 5)]).len(), 2, "a circle ends");
    }

    #[test]
    fn only_who_is_meant_is_signalled() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let who = look_at(pid).unwrap().who();
        Who { began: who.began + 1, ..who }.signal(Signal::KILL);
        assert!(child.try_wait().unwrap().is_none(), "somebody else who had the number");
        who.signal(Signal::KILL);
        assert!(!child.wait().unwrap().success());
        who.signal(Signal::KILL);
    }

    #[test]
    fn a_process_that_computes_is_seen_to() {
        let pid = own_pid();
        let before = look_at(pid).unwrap();
        let mut after = before.clone();
        while after.used < before.used + Duration::from_millis(5) {
            std::hint::spin_loop();
            after = look_at(pid).unwrap();
        }
        assert!(after.resident > 0);
        assert_eq!(after.began, before.began);
    }
}
