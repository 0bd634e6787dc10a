//! The largest number of processes and threads of each run. The kernel records it for a whole cgroup, not
//! for a run, so the agent samples: soon after a run has started, and less often the longer it runs. One
//! sample is for all runs. Most runs exit before the first one, and cost nothing.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::limits_watcher::PollCost;
use crate::processes::{self, proc_stat};
use crate::run::{Run, RunKind};
use crate::serve::Shared;

/// When a run is counted first.
pub(crate) const FIRST_COUNT: Duration = Duration::from_millis(3);
/// The longest interval.
const MAX_INTERVAL: Duration = Duration::from_secs(5);
/// The next sample is taken when the age of a run has grown by this part: a quarter.
const AGE_PART: u32 = 4;
/// Sampling takes at most this part of the time: one in twenty.
const COST_FACTOR: u32 = 20;

/// Samples for as long as the agent runs.
pub(crate) async fn count(agent: Shared) {
    let mut earliest = Instant::now();
    loop {
        let due = agent.runs.active().iter().filter_map(|run| due(run)).min().map(|due| due.max(earliest));
        agent.runs.set_next_count(due);
        let Some(due) = due else {
            agent.runs.started_before_count().await;
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            () = agent.runs.started_before_count() => continue,
        }
        if agent.pause.is_on() {
            // No process is started.
            agent.pause.resumed().await;
            continue;
        }
        // The run may have exited meanwhile.
        if agent.runs.active().iter().any(|run| due_by(run, Instant::now())) {
            let cost = PollCost::begin();
            count_tasks(&agent);
            earliest = Instant::now() + cost.elapsed() * COST_FACTOR;
        }
    }
}

/// When a run is to be counted next; `None` for one that has exited or whose processes count for another.
fn due(run: &Run) -> Option<Instant> {
    if run.kind != RunKind::Requested {
        return None;
    }
    let state = run.state.borrow();
    if state.exit.is_some() {
        return None;
    }
    Some(match state.tasks_counted {
        None => run.started + FIRST_COUNT,
        Some(at) => at + (at.duration_since(run.started) / AGE_PART).clamp(FIRST_COUNT, MAX_INTERVAL),
    })
}

fn due_by(run: &Run, now: Instant) -> bool {
    due(run).is_some_and(|due| due <= now)
}

/// Counts the tasks of all runs.
fn count_tasks(agent: &Shared) {
    let mut counts: Vec<(Rc<Run>, u64)> = agent
        .runs
        .active()
        .into_iter()
        .filter(|run| run.kind == RunKind::Requested)
        .map(|run| (run, 0))
        .collect();
    for seen in proc_stat::sandbox_processes_coarse(&agent.mode.processes) {
        let Some(run) = processes::run_of(agent, seen.pid) else { continue };
        if let Some((_, count)) = counts.iter_mut().find(|(known, _)| Rc::ptr_eq(known, &run)) {
            *count += seen.threads();
        }
    }
    let now = Instant::now();
    for (run, count) in counts {
        let mut state = run.state.borrow_mut();
        state.tasks_counted = Some(now);
        state.saw_tasks(count);
    }
}
