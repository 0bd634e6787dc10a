//! How much CPU time a sandbox has used, and stopping it when that is more than its share. Time flows into
//! an account as the clock goes and out of it as processes compute. Below zero everybody is stopped until it
//! is paid back, so that what was used before anybody looked is not for free.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::look::{Seen, Who};

/// What an account holds at most: as long as the period of a cgroup.
const PERIOD: f64 = 0.1;
/// Seconds of CPU time below which going on is not worth it.
const WORTH: f64 = 0.05;

/// The account.
#[derive(Debug)]
pub(super) struct Shares {
    cpus: f64,
    balance: f64,
    since: Option<Instant>,
    meter: Meter,
    /// Whom this stopped; parents before children.
    stopped: Vec<Who>,
    /// CPUs of the host.
    host: f64,
}

impl Shares {
    pub(super) fn new(cpus: f64) -> Self {
        let host = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let host = f64::from(u32::try_from(host).unwrap_or(u32::MAX));
        let (balance, meter) = (cpus * PERIOD, Meter::default());
        Self { cpus, balance, since: None, meter, stopped: Vec::new(), host }
    }

    /// Nobody is there.
    pub(super) fn forget(&mut self) {
        self.stopped.clear();
        self.meter.known.clear();
    }

    /// Looks, stops everybody or lets them go on. Says when to look again.
    pub(super) fn keep(&mut self, seen: &[Seen], now: Instant) -> Duration {
        let used = self.meter.used_since(seen, of_own_children());
        let passed = self.since.replace(now).map_or(0.0, |since| (now - since).as_secs_f64());
        self.balance = (self.balance + passed * self.cpus).min(self.cpus * PERIOD) - used.as_secs_f64();
        let mut stands_still = true;
        if self.balance < 0.0 {
            stands_still = self.stop(seen);
        } else if !self.stopped.is_empty() && self.balance >= self.cpus * WORTH {
            self.go_on();
        }
        let seconds = if !stands_still {
            0.0
        } else if self.stopped.is_empty() {
            self.balance / self.host
        } else {
            (self.cpus * WORTH - self.balance) / self.cpus
        };
        Duration::from_secs_f64(seconds.clamp(0.005, 60.0))
    }

    /// Parents first, so that none sees a child stopped: it would take that for somebody's wish. Whoever is
    /// told to stop needs a moment, and its children are not told before it has: at the next look. What they
    /// use meanwhile is paid back like the rest. Whether everybody stands still.
    fn stop(&mut self, seen: &[Seen]) -> bool {
        // One that waits for its child inside the kernel does not see anything.
        let looks: HashSet<i32> =
            seen.iter().filter(|one| one.runs() && one.state != b'D').map(|one| one.pid).collect();
        for one in seen.iter().filter(|one| one.runs() && !looks.contains(&one.parent)) {
            one.who().signal(Signal::STOP);
            if !self.stopped.contains(&one.who()) {
                self.stopped.push(one.who());
            }
        }
        looks.is_empty()
    }

    /// Children first, for the same reason. Whom somebody else had stopped stays so.
    fn go_on(&mut self) {
        for who in self.stopped.drain(..).rev() {
            who.signal(Signal::CONT);
        }
    }
}

/// CPU time of everything the agent itself has reaped.
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

/// CPU time of processes that come and go. What one has used goes to its parent's account of children when
/// it is waited for: it must be counted, once, whether or not it was seen before.
#[derive(Debug, Default)]
struct Meter {
    known: HashMap<(i32, u64), (Duration, Duration)>,
    own_children: Duration,
    /// What went away counted and has not come up again.
    counted: Duration,
}

impl Meter {
    fn used_since(&mut self, seen: &[Seen], own_children: Duration) -> Duration {
        let mut before = std::mem::take(&mut self.known);
        let (mut used, mut waited_for) = (Duration::ZERO, own_children.saturating_sub(self.own_children));
        self.own_children = own_children;
        for one in seen {
            let key = (one.pid, one.began);
            let (own, children) = before.remove(&key).unwrap_or_default();
            used += one.used.saturating_sub(own);
            waited_for += one.waited_for.saturating_sub(children);
            self.known.insert(key, (one.used, one.waited_for));
        }
        let gone: Duration = before.into_values().map(|(own, children)| own + children).sum();
        let counted = self.counted + gone;
        // A parent that was read before its child went comes up with it next time, and not later.
        self.counted = gone.min(counted.saturating_sub(waited_for));
        used + waited_for.saturating_sub(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn seen(pid: i32, used: u64, waited_for: u64) -> Seen {
        Seen {
            pid,
            began: 1,
            parent: 1,
            state: b'R',
            used: MS(used),
            waited_for: MS(waited_for),
            resident: 0,
            threads: 1,
        }
    }

    #[test]
    fn time_is_counted_once_whoever_tells_of_it() {
        let mut meter = Meter::default();
        assert_eq!(meter.used_since(&[seen(2, 10, 0), seen(3, 20, 0)], MS(0)), MS(30));
        assert_eq!(meter.used_since(&[seen(2, 10, 0), seen(3, 50, 0)], MS(0)), MS(30));
        // 3 has ended with 5 ms more, and 2 has waited for it.
        assert_eq!(meter.used_since(&[seen(2, 11, 55)], MS(0)), MS(6));
        // Somebody nobody ever saw has ended.
        assert_eq!(meter.used_since(&[seen(2, 11, 95)], MS(0)), MS(40));
        // 2 has ended, and the agent has waited for it.
        assert_eq!(meter.used_since(&[], MS(106)), MS(0));
        assert_eq!(meter.used_since(&[], MS(126)), MS(20));
    }

    #[test]
    fn who_goes_before_its_parent_is_read_again_is_not_counted_twice() {
        let mut meter = Meter::default();
        meter.used_since(&[seen(2, 0, 0), seen(3, 40, 0)], MS(0));
        assert_eq!(meter.used_since(&[seen(2, 0, 0)], MS(0)), MS(0));
        assert_eq!(meter.used_since(&[seen(2, 0, 40)], MS(0)), MS(0));
    }

    #[test]
    fn who_is_never_waited_for_hides_no_more_than_one_look() {
        let mut meter = Meter::default();
        meter.used_since(&[seen(2, 0, 0), seen(3, 400, 0)], MS(0));
        meter.used_since(&[seen(2, 0, 0)], MS(0));
        meter.used_since(&[seen(2, 0, 0)], MS(0));
        assert_eq!(meter.used_since(&[seen(2, 0, 30)], MS(0)), MS(30));
    }
}
