//! The runs this agent knows: active ones, and exited ones whose result the host has not recorded yet.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use tokio::sync::Notify;

use super::{Run, RunKind};
use crate::processes::uts_tag::Tag;
use crate::task_counter;

/// All runs.
#[derive(Default)]
pub(crate) struct Runs {
    by_id: RefCell<HashMap<String, Rc<Run>>>,
    /// Runs that were killed before they were started, newest last.
    killed_before_start: RefCell<VecDeque<String>>,
    /// Notified whenever a run starts.
    started: Notify,
    /// When tasks are counted next.
    next_count: Cell<Option<Instant>>,
    /// Notified when a run starts that has to be counted before that.
    before_count: Notify,
}

/// How many of these are remembered.
const MAX_KILLED_BEFORE_START: usize = 64;

impl Runs {
    pub(crate) fn insert(&self, run: Rc<Run>) {
        if self.next_count.get().is_none_or(|next| run.started + task_counter::FIRST_COUNT < next) {
            self.before_count.notify_one();
        }
        self.by_id.borrow_mut().insert(run.id.clone(), run);
        self.started.notify_one();
    }

    /// Sets when tasks are counted next.
    pub(crate) fn set_next_count(&self, next: Option<Instant>) {
        self.next_count.set(next);
    }

    /// Waits until a run starts whose tasks have to be counted before the next count.
    pub(crate) async fn started_before_count(&self) {
        self.before_count.notified().await;
    }

    /// Waits until a run starts; one that started since the last call counts.
    pub(crate) async fn started(&self) {
        self.started.notified().await;
    }

    pub(crate) fn get(&self, id: &str) -> Option<Rc<Run>> {
        self.by_id.borrow().get(id).cloned()
    }

    /// The active run whose first process, or whose supervisor, is `pid`.
    pub(crate) fn by_pid(&self, pid: i32) -> Option<Rc<Run>> {
        self.active().into_iter().find(|run| run.pid == pid)
    }

    /// The active run a tag belongs to: of several the last, see [`Runs::tag_was_reused`].
    pub(crate) fn by_tag(&self, tag: Tag) -> Option<Rc<Run>> {
        self.active().into_iter().filter(|run| run.processes.tag() == Some(tag)).max_by_key(|run| run.started)
    }

    /// Whether the tag of a run that has exited belongs to a later run now.
    pub(crate) fn tag_was_reused(&self, run: &Run) -> bool {
        let later = |other: &Run| other.processes.tag() == run.processes.tag() && other.started > run.started;
        run.processes.tag().is_some() && self.by_id.borrow().values().any(|other| later(other))
    }

    /// Runs without a result yet: running, or exited and being finished.
    pub(crate) fn active(&self) -> Vec<Rc<Run>> {
        self.by_id.borrow().values().filter(|run| run.state.borrow().ended.is_none()).cloned().collect()
    }

    /// Remembers that a run is to be killed as soon as it starts.
    pub(crate) fn kill_before_start(&self, id: &str) {
        let mut killed = self.killed_before_start.borrow_mut();
        if killed.len() == MAX_KILLED_BEFORE_START {
            killed.pop_front();
        }
        killed.push_back(id.to_owned());
    }

    /// Whether a run was killed before it started.
    pub(crate) fn is_killed_before_start(&self, id: &str) -> bool {
        self.killed_before_start.borrow().iter().any(|one| one == id)
    }

    /// Drops a run that has a result.
    pub(crate) fn forget(&self, id: &str) {
        let mut runs = self.by_id.borrow_mut();
        if runs.get(id).is_some_and(|run| run.state.borrow().ended.is_some()) {
            runs.remove(id);
        }
    }

    /// Drops the run of an interpreter or a step that has exited.
    pub(crate) fn remove(&self, id: &str) {
        self.by_id.borrow_mut().remove(id);
    }

    /// IDs of the host's runs, and whether they have exited.
    pub(crate) fn list(&self) -> Vec<(String, bool)> {
        let runs = self.by_id.borrow();
        let requested = runs.values().filter(|run| run.kind == RunKind::Requested);
        requested.map(|run| (run.id.clone(), run.state.borrow().ended.is_some())).collect()
    }
}
