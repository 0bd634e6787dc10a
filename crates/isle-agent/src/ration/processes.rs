//! How many processes and threads a sandbox has, where neither a cgroup nor a user id of its own counts
//! them. Of too many, those go first that have most to answer for: threads, and children that ended and
//! that nobody takes away; among equals the newest.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use rustix::process::Signal;

use super::look::Seen;
use crate::serve::Shared;
use crate::tree;

/// More than a sandbox starts in a second, as far as Isle has seen.
const FASTEST: u64 = 10_000;

/// Kills what is too many. Says when to look again: before there could be too many once more.
pub(super) fn keep(agent: &Shared, seen: &[Seen], most: u64) -> Duration {
    let too_many = too_many(seen, most);
    for one in &too_many {
        if let Some(run) = tree::run_of(agent, one.pid) {
            run.state.borrow_mut().killed_for_processes += 1;
        }
        one.who().signal(Signal::KILL);
    }
    let room = if too_many.is_empty() { most.saturating_sub(count(seen)) } else { 0 };
    Duration::from_micros(room * (1_000_000 / FASTEST))
}

fn has_ended(one: &Seen) -> bool {
    matches!(one.state, b'Z' | b'X')
}

/// The kernel counts those that ended, too, until somebody takes them away.
fn count(seen: &[Seen]) -> u64 {
    seen.iter().map(|one| one.threads.max(1)).sum()
}

/// Who has to go.
fn too_many(seen: &[Seen], most: u64) -> Vec<&Seen> {
    let mut left = count(seen);
    if left <= most {
        return Vec::new();
    }
    let mut ended: HashMap<i32, u64> = HashMap::new();
    for one in seen.iter().filter(|one| has_ended(one)) {
        *ended.entry(one.parent).or_default() += 1;
    }
    let weight = |one: &Seen| one.threads.max(1) + ended.get(&one.pid).copied().unwrap_or(0);
    let mut living: Vec<&Seen> = seen.iter().filter(|one| !has_ended(one)).collect();
    living.sort_by_key(|one| Reverse((weight(one), one.began, one.pid)));
    living
        .into_iter()
        .take_while(|one| {
            let goes = left > most;
            left = left.saturating_sub(weight(one));
            goes
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(pid: i32, parent: i32, threads: u64, state: u8) -> Seen {
        Seen { threads, state, ..Seen::of(pid, parent, u64::from(pid.unsigned_abs())) }
    }

    fn go(seen: &[Seen], most: u64) -> Vec<i32> {
        too_many(seen, most).iter().map(|one| one.pid).collect()
    }

    #[test]
    fn of_too_many_processes_the_newest_go_and_no_more_of_them_than_there_are_too_many() {
        let seen: Vec<Seen> = (10..20).map(|pid| one(pid, 9, 1, b'S')).collect();
        assert!(go(&seen, 10).is_empty());
        assert_eq!(go(&seen, 8), [19, 18]);
    }

    #[test]
    fn who_has_many_threads_or_leaves_the_dead_lying_goes_before_anybody_else() {
        let mut seen = vec![one(10, 9, 50, b'S'), one(11, 9, 1, b'S')];
        assert_eq!(go(&seen, 20), [10]);
        seen[0].threads = 1;
        seen.extend((20..60).map(|pid| one(pid, 10, 1, b'Z')));
        assert_eq!(go(&seen, 20), [10], "its dead are taken away by whoever adopts them");
    }
}
