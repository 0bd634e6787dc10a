//! Limiting the CPU time of a sandbox by stopping its processes. An account is credited as wall-clock time
//! passes and debited by the CPU time of processes. Below zero all processes are stopped until it is
//! balanced, so that CPU time used between two polls is charged too.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::processes::proc_stat::{ProcessId, ProcessStat};

/// Maximum credit in seconds: the period of a cgroup.
const PERIOD: f64 = 0.1;
/// Credit in seconds from which on processes are resumed.
const RESUME_AT: f64 = 0.05;

/// The account.
#[derive(Debug)]
pub(super) struct CpuAccount {
    cpus: f64,
    balance: f64,
    since: Option<Instant>,
    meter: Meter,
    /// Processes this has stopped; parents before children.
    stopped: Vec<ProcessId>,
    /// CPUs of the host.
    host: f64,
}

impl CpuAccount {
    pub(super) fn new(cpus: f64) -> Self {
        let host = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let host = f64::from(u32::try_from(host).unwrap_or(u32::MAX));
        let (balance, meter) = (cpus * PERIOD, Meter::default());
        Self { cpus, balance, since: None, meter, stopped: Vec::new(), host }
    }

    /// There are no processes.
    pub(super) fn forget(&mut self) {
        self.stopped.clear();
        self.meter.known.clear();
    }

    /// Updates the account, stops or resumes processes. Returns when to poll again.
    pub(super) fn enforce(&mut self, seen: &[ProcessStat], now: Instant) -> Duration {
        let used = self.meter.used_since(seen, of_own_children());
        let passed = self.since.replace(now).map_or(0.0, |since| (now - since).as_secs_f64());
        self.balance = (self.balance + passed * self.cpus).min(self.cpus * PERIOD) - used.as_secs_f64();
        let mut all_stopped = true;
        if self.balance < 0.0 {
            all_stopped = self.stop(seen);
        } else if !self.stopped.is_empty() && self.balance >= self.cpus * RESUME_AT {
            self.resume();
        }
        let seconds = if !all_stopped {
            0.0
        } else if self.stopped.is_empty() {
            self.balance / self.host
        } else {
            (self.cpus * RESUME_AT - self.balance) / self.cpus
        };
        Duration::from_secs_f64(seconds.clamp(0.005, 60.0))
    }

    /// Parents first, so that none sees a stopped child and reacts to it. A signalled process takes a
    /// moment to stop, and its children are signalled after that: at the next poll. What they use meanwhile
    /// is charged like the rest. Returns whether all are stopped.
    fn stop(&mut self, seen: &[ProcessStat]) -> bool {
        // A process in uninterruptible sleep does not see its children.
        let running: HashSet<i32> =
            seen.iter().filter(|one| one.is_running() && one.state != b'D').map(|one| one.pid).collect();
        for one in seen.iter().filter(|one| one.is_running() && !running.contains(&one.parent)) {
            one.id().signal(Signal::STOP);
            if !self.stopped.contains(&one.id()) {
                self.stopped.push(one.id());
            }
        }
        running.is_empty()
    }

    /// Children first, for the same reason. Processes that were stopped by others stay stopped.
    fn resume(&mut self) {
        for who in self.stopped.drain(..).rev() {
            who.signal(Signal::CONT);
        }
    }
}

/// CPU time of all processes the agent has reaped.
fn of_own_children() -> Duration {
    // SAFETY: plain data for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct, which outlives the call.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Measures the CPU time of processes that start and exit. When a process is waited for, its CPU time is
/// added to its parent's; it must be counted once, whether or not it was seen before.
#[derive(Debug, Default)]
struct Meter {
    known: HashMap<(i32, u64), (Duration, Duration)>,
    own_children: Duration,
    /// CPU time of exited processes that was counted and is not in their parents' yet.
    counted: Duration,
}

impl Meter {
    fn used_since(&mut self, seen: &[ProcessStat], own_children: Duration) -> Duration {
        let mut before = std::mem::take(&mut self.known);
        let (mut used, mut waited_for) = (Duration::ZERO, own_children.saturating_sub(self.own_children));
        self.own_children = own_children;
        for one in seen {
            let key = (one.pid, one.start_time);
            let (own, children) = before.remove(&key).unwrap_or_default();
            used += one.cpu.saturating_sub(own);
            waited_for += one.children_cpu.saturating_sub(children);
            self.known.insert(key, (one.cpu, one.children_cpu));
        }
        let gone: Duration = before.into_values().map(|(own, children)| own + children).sum();
        let counted = self.counted + gone;
        // A parent that was read before its child exited includes it at the next poll, and not later.
        self.counted = gone.min(counted.saturating_sub(waited_for));
        used + waited_for.saturating_sub(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn seen(pid: i32, used: u64, waited_for: u64) -> ProcessStat {
        ProcessStat {
            pid,
            start_time: 1,
            parent: 1,
            state: b'R',
            cpu: MS(used),
            children_cpu: MS(waited_for),
            resident: 0,
            threads: 1,
        }
    }

    #[test]
    fn time_is_counted_once_wherever_it_shows_up() {
        let mut meter = Meter::default();
        assert_eq!(meter.used_since(&[seen(2, 10, 0), seen(3, 20, 0)], MS(0)), MS(30));
        assert_eq!(meter.used_since(&[seen(2, 10, 0), seen(3, 50, 0)], MS(0)), MS(30));
        // 3 has exited with 5 ms more, and 2 has waited for it.
        assert_eq!(meter.used_since(&[seen(2, 11, 55)], MS(0)), MS(6));
        // A process that was never seen has exited.
        assert_eq!(meter.used_since(&[seen(2, 11, 95)], MS(0)), MS(40));
        // 2 has exited, and the agent has waited for it.
        assert_eq!(meter.used_since(&[], MS(106)), MS(0));
        assert_eq!(meter.used_since(&[], MS(126)), MS(20));
    }

    #[test]
    fn a_child_that_exits_before_its_parent_is_read_is_counted_once() {
        let mut meter = Meter::default();
        meter.used_since(&[seen(2, 0, 0), seen(3, 40, 0)], MS(0));
        assert_eq!(meter.used_since(&[seen(2, 0, 0)], MS(0)), MS(0));
        assert_eq!(meter.used_since(&[seen(2, 0, 40)], MS(0)), MS(0));
    }

    #[test]
    fn a_child_that_is_never_waited_for_hides_at_most_one_poll() {
        let mut meter = Meter::default();
        meter.used_since(&[seen(2, 0, 0), seen(3, 400, 0)], MS(0));
        meter.used_since(&[seen(2, 0, 0)], MS(0));
        meter.used_since(&[seen(2, 0, 0)], MS(0));
        assert_eq!(meter.used_since(&[seen(2, 0, 30)], MS(0)), MS(30));
    }
}
