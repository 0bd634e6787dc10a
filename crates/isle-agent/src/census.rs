//! How many processes and threads the runs have at once. The kernel remembers that of a whole cgroup, not of
//! a run, so the agent looks: soon after a run began, and ever more rarely the longer it goes on. One look
//! counts for all runs. Most runs are over before the first, and cost nothing.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::ration::{Effort, look};
use crate::runs::{Run, RunKind};
use crate::serve::Shared;
use crate::tree;

/// When a run is looked at first.
pub(crate) const FIRST: Duration = Duration::from_millis(3);
/// The longest time nobody looks.
const RAREST: Duration = Duration::from_secs(5);
/// The next look comes when a run has become older by this part of its age.
const PART: u32 = 4;
/// Looking takes at most this part of the time.
const EFFORT: u32 = 20;

/// Looks for as long as the sandbox lives.
pub(crate) async fn keep(agent: Shared) {
    let mut earliest = Instant::now();
    loop {
        let due = agent.runs.living().iter().filter_map(|run| due(run)).min().map(|due| due.max(earliest));
        agent.runs.looks_at(due);
        let Some(due) = due else {
            agent.runs.begins_before_look().await;
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            () = agent.runs.begins_before_look() => continue,
        }
        if agent.pause.is_on() {
            // Nobody starts anything.
            agent.pause.off().await;
            continue;
        }
        // One that has ended meanwhile is nobody's concern.
        if agent.runs.living().iter().any(|run| due_by(run, Instant::now())) {
            let effort = Effort::begin();
            look(&agent);
            earliest = Instant::now() + effort.spent() * EFFORT;
        }
    }
}

/// When a run is to be looked at; `None` for one whose processes are another's, or have ended.
fn due(run: &Run) -> Option<Instant> {
    if run.kind != RunKind::Asked {
        return None;
    }
    let state = run.state.borrow();
    if state.exit.is_some() {
        return None;
    }
    Some(match state.looked {
        None => run.started + FIRST,
        Some(at) => at + (at.duration_since(run.started) / PART).clamp(FIRST, RAREST),
    })
}

fn due_by(run: &Run, now: Instant) -> bool {
    due(run).is_some_and(|due| due <= now)
}

/// Counts everybody.
fn look(agent: &Shared) {
    let mut counts: Vec<(Rc<Run>, u64)> = agent
        .runs
        .living()
        .into_iter()
        .filter(|run| run.kind == RunKind::Asked)
        .map(|run| (run, 0))
        .collect();
    for seen in look::everybody_roughly() {
        let Some(run) = tree::run_of(agent, seen.pid) else { continue };
        if let Some((_, count)) = counts.iter_mut().find(|(known, _)| Rc::ptr_eq(known, &run)) {
            *count += seen.threads();
        }
    }
    let now = Instant::now();
    for (run, count) in counts {
        let mut state = run.state.borrow_mut();
        state.looked = Some(now);
        state.saw(count);
    }
}
