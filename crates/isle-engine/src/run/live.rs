//! Where runs are kept while they live, and a little longer: the last few ended ones stay in
//! memory so that those who follow them can resume; all others are in the store.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, RwLock};

use super::Run;
use isle_core::values::{RunId, SandboxId};

/// Ended runs that stay in memory.
const RECENT: usize = 32;
/// Bytes of output they may hold together.
const RECENT_BYTES: usize = 4 * 1024 * 1024;

/// Runs by id.
#[derive(Debug, Default)]
pub(crate) struct LiveRuns {
    live: RwLock<HashMap<RunId, Arc<Run>>>,
    recent: Mutex<Recent>,
}

/// Ended runs, each with the bytes it holds.
#[derive(Debug, Default)]
struct Recent {
    runs: VecDeque<(Arc<Run>, usize)>,
    bytes: usize,
}

impl LiveRuns {
    pub(crate) fn add(&self, run: Arc<Run>) {
        crate::write(&self.live).insert(run.id.clone(), run);
    }

    /// The run, while it lives and a little longer.
    pub(crate) fn get(&self, id: &RunId) -> Option<Arc<Run>> {
        let live = crate::read(&self.live).get(id).cloned();
        live.or_else(|| {
            let recent = crate::lock(&self.recent);
            recent.runs.iter().find(|(run, _)| run.id == *id).map(|(run, _)| Arc::clone(run))
        })
    }

    /// It has ended.
    pub(crate) fn ended(&self, run: &Arc<Run>) {
        // An ended run holds what it held: nobody has to be asked again.
        let held = run.held_bytes();
        let mut recent = crate::lock(&self.recent);
        recent.runs.push_back((Arc::clone(run), held));
        recent.bytes += held;
        while recent.runs.len() > 1 && (recent.runs.len() > RECENT || recent.bytes > RECENT_BYTES) {
            recent.bytes -= recent.runs.pop_front().map_or(0, |(_, held)| held);
        }
        drop(recent);
        crate::write(&self.live).remove(&run.id);
    }

    /// Those going on in one incarnation of a sandbox.
    pub(crate) fn running_in(&self, sandbox: &SandboxId) -> Vec<Arc<Run>> {
        let mut runs: Vec<_> =
            crate::read(&self.live).values().filter(|run| run.sandbox.id == *sandbox).cloned().collect();
        runs.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        runs
    }

    /// Those going on.
    pub(crate) fn running(&self) -> usize {
        crate::read(&self.live).len()
    }
}
