//! The limit on processes and threads, where neither a cgroup nor a UID of its own counts them. Processes
//! with most threads and unreaped children are killed first; among equals the newest.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use rustix::process::Signal;

use crate::processes;
use crate::processes::proc_stat::ProcessStat;
use crate::serve::Shared;

/// More processes than a sandbox can start in a second, as far as measured.
const FASTEST: u64 = 10_000;

/// Kills processes above the limit. Returns when to poll again: before the limit can be exceeded again.
pub(super) fn enforce(agent: &Shared, seen: &[ProcessStat], most: u64) -> Duration {
    let too_many = too_many(seen, most);
    for one in &too_many {
        if let Some(run) = processes::run_of(agent, one.pid) {
            run.state.borrow_mut().killed_for_processes += 1;
        }
        one.id().signal(Signal::KILL);
    }
    let room = if too_many.is_empty() { most.saturating_sub(count(seen)) } else { 0 };
    Duration::from_micros(room * (1_000_000 / FASTEST))
}

/// The kernel also counts exited processes until they are reaped.
fn count(seen: &[ProcessStat]) -> u64 {
    seen.iter().map(|one| one.threads.max(1)).sum()
}

/// The processes to kill.
fn too_many(seen: &[ProcessStat], most: u64) -> Vec<&ProcessStat> {
    let mut left = count(seen);
    if left <= most {
        return Vec::new();
    }
    let mut exited: HashMap<i32, u64> = HashMap::new();
    for one in seen.iter().filter(|one| one.has_exited()) {
        *exited.entry(one.parent).or_default() += 1;
    }
    let weight = |one: &ProcessStat| one.threads.max(1) + exited.get(&one.pid).copied().unwrap_or(0);
    let mut running: Vec<&ProcessStat> = seen.iter().filter(|one| !one.has_exited()).collect();
    running.sort_by_key(|one| Reverse((weight(one), one.start_time, one.pid)));
    running
        .into_iter()
        .take_while(|one| {
            let kill = left > most;
            left = left.saturating_sub(weight(one));
            kill
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(pid: i32, parent: i32, threads: u64, state: u8) -> ProcessStat {
        ProcessStat { threads, state, ..ProcessStat::of(pid, parent, u64::from(pid.unsigned_abs())) }
    }

    fn killed(seen: &[ProcessStat], most: u64) -> Vec<i32> {
        too_many(seen, most).iter().map(|one| one.pid).collect()
    }

    #[test]
    fn the_newest_processes_above_the_limit_are_killed_and_no_others() {
        let seen: Vec<ProcessStat> = (10..20).map(|pid| one(pid, 9, 1, b'S')).collect();
        assert!(killed(&seen, 10).is_empty());
        assert_eq!(killed(&seen, 8), [19, 18]);
    }

    #[test]
    fn a_process_with_many_threads_or_zombies_is_killed_first() {
        let mut seen = vec![one(10, 9, 50, b'S'), one(11, 9, 1, b'S')];
        assert_eq!(killed(&seen, 20), [10]);
        seen[0].threads = 1;
        seen.extend((20..60).map(|pid| one(pid, 10, 1, b'Z')));
        assert_eq!(killed(&seen, 20), [10], "its zombies are reaped by the process that adopts them");
    }
}
