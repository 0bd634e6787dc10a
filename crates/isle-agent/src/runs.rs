//! The runs this agent knows: alive, or ended and not yet recorded by the host.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Instant;

use bytes::Bytes;
use isle_wire::{ContextFate, Ended, Exit, Failure, OnHangup, RunLimits, StepEnd};
use tokio::sync::Notify;

use crate::census;
use crate::entrance::Entrance;
use crate::output::{Fresh, Retained};
use crate::spent::Spent;
use crate::tree::{Tag, Tree};

/// One run.
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) pid: i32,
    pub(crate) tree: Tree,
    pub(crate) started: Instant,
    pub(crate) on_hangup: OnHangup,
    pub(crate) limits: RunLimits,
    pub(crate) kind: RunKind,
    pub(crate) entrance: Entrance,
    /// Its input outlives the stream that started it.
    pub(crate) keep_input: bool,
    pub(crate) state: RefCell<RunState>,
    /// Something in `state` changed.
    pub(crate) changed: Notify,
}

/// Whose a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// The host's.
    Asked,
    /// The agent's own: an interpreter, in which calls of the host run.
    Interpreter,
    /// One of several commands; the run of all is the host's.
    Step,
}

/// What changes about a run.
pub(crate) struct RunState {
    pub(crate) stdout: Retained,
    pub(crate) stderr: Retained,
    pub(crate) fresh: Fresh,
    /// Where each follower is in `fresh`.
    pub(crate) followers: HashMap<u64, u64>,
    pub(crate) next_follower: u64,
    /// Set by the reaper.
    pub(crate) exit: Option<Reaped>,
    /// What a supervisor ended after the program.
    pub(crate) leftovers: u32,
    /// Set when all is over.
    pub(crate) ended: Option<Ended>,
    /// Someone asked for the end of the tree; `true` when it was the clock.
    pub(crate) killed: Option<bool>,
    pub(crate) refused: BTreeMap<i32, u64>,
    /// How many of its processes the agent killed at the memory limit.
    pub(crate) killed_for_memory: u32,
    /// What those of its processes took that its first one did not wait for.
    pub(crate) others: Spent,
    /// The same at the limit on processes.
    pub(crate) killed_for_processes: u32,
    /// Why it could not be started; set together with `ended`.
    pub(crate) failed: Option<Failure>,
    /// What an interpreter gave back beside output.
    pub(crate) report: Option<Bytes>,
    /// What became of the context it ran in.
    pub(crate) context: Option<ContextFate>,
    /// Of several commands: the ends of those that have ended.
    pub(crate) steps: Vec<StepEnd>,
    /// Of an interpreter: the call in it. Of one of several commands: the run of all.
    pub(crate) on_behalf: Weak<Run>,
    /// How often the host is to be told that a program asks for a name.
    pub(crate) asked: u64,
    /// When its processes were last counted.
    pub(crate) looked: Option<Instant>,
    /// The most processes and threads of it that were seen at once: the one it began with.
    pub(crate) most_tasks: u32,
}

/// What the kernel said about an ended process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reaped {
    pub(crate) exit: Exit,
    pub(crate) spent: Spent,
}

impl RunState {
    pub(crate) fn new(retain: u64) -> Self {
        Self {
            stdout: Retained::new(retain),
            stderr: Retained::new(retain),
            fresh: Fresh::default(),
            followers: HashMap::new(),
            next_follower: 0,
            exit: None,
            leftovers: 0,
            ended: None,
            killed: None,
            refused: BTreeMap::new(),
            killed_for_memory: 0,
            others: Spent::NOTHING,
            killed_for_processes: 0,
            failed: None,
            report: None,
            context: None,
            steps: Vec::new(),
            on_behalf: Weak::new(),
            asked: 0,
            looked: None,
            most_tasks: 1,
        }
    }

    /// So many of its processes and threads were seen at once.
    pub(crate) fn saw(&mut self, tasks: u64) {
        self.most_tasks = self.most_tasks.max(u32::try_from(tasks).unwrap_or(u32::MAX));
    }

    /// Forgets chunks every follower has sent; without followers nothing needs to be kept.
    pub(crate) fn trim(&mut self) {
        let seen = self.followers.values().copied().min().unwrap_or_else(|| self.fresh.end());
        self.fresh.seen_until(seen);
    }
}

/// All runs.
#[derive(Default)]
pub(crate) struct Runs {
    by_id: RefCell<HashMap<String, Rc<Run>>>,
    /// Runs that were killed before they were heard of, newest last.
    condemned: RefCell<VecDeque<String>>,
    /// Told whenever one begins.
    begun: Notify,
    /// When processes are counted next.
    next_look: Cell<Option<Instant>>,
    /// Told when one begins that is to be counted before.
    before_look: Notify,
}

/// How many early kills are remembered.
const MOST_CONDEMNED: usize = 64;

impl Runs {
    pub(crate) fn insert(&self, run: Rc<Run>) {
        if self.next_look.get().is_none_or(|next| run.started + census::FIRST < next) {
            self.before_look.notify_one();
        }
        self.by_id.borrow_mut().insert(run.id.clone(), run);
        self.begun.notify_one();
    }

    /// Says when processes are counted next.
    pub(crate) fn looks_at(&self, next: Option<Instant>) {
        self.next_look.set(next);
    }

    /// Waits until a run begins that is to be counted before the next look.
    pub(crate) async fn begins_before_look(&self) {
        self.before_look.notified().await;
    }

    /// Waits until a run begins; one that began since the last time counts.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }

    pub(crate) fn get(&self, id: &str) -> Option<Rc<Run>> {
        self.by_id.borrow().get(id).cloned()
    }

    /// The living run whose first process, or whose supervisor, is `pid`.
    pub(crate) fn by_pid(&self, pid: i32) -> Option<Rc<Run>> {
        self.living().into_iter().find(|run| run.pid == pid)
    }

    /// The living run a tag belongs to: of several the last, see [`Runs::passed_on_tag`].
    pub(crate) fn by_tag(&self, tag: Tag) -> Option<Rc<Run>> {
        self.living().into_iter().filter(|run| run.tree.tag() == Some(tag)).max_by_key(|run| run.started)
    }

    /// Whether the tag of a run that is being wound up belongs to a later run by now.
    pub(crate) fn passed_on_tag(&self, run: &Run) -> bool {
        let later = |other: &Run| other.tree.tag() == run.tree.tag() && other.started > run.started;
        run.tree.tag().is_some() && self.by_id.borrow().values().any(|other| later(other))
    }

    /// Runs whose first process has not been reaped, or that are still being wound up.
    pub(crate) fn living(&self) -> Vec<Rc<Run>> {
        self.by_id.borrow().values().filter(|run| run.state.borrow().ended.is_none()).cloned().collect()
    }

    /// Remembers that a run is to be ended as soon as it starts.
    pub(crate) fn condemn(&self, id: &str) {
        let mut condemned = self.condemned.borrow_mut();
        if condemned.len() == MOST_CONDEMNED {
            condemned.pop_front();
        }
        condemned.push_back(id.to_owned());
    }

    /// Whether a run was killed before it started.
    pub(crate) fn is_condemned(&self, id: &str) -> bool {
        self.condemned.borrow().iter().any(|one| one == id)
    }

    /// Drops an ended run.
    pub(crate) fn forget(&self, id: &str) {
        let mut runs = self.by_id.borrow_mut();
        if runs.get(id).is_some_and(|run| run.state.borrow().ended.is_some()) {
            runs.remove(id);
        }
    }

    /// Drops an interpreter that is gone.
    pub(crate) fn remove(&self, id: &str) {
        self.by_id.borrow_mut().remove(id);
    }

    /// Ids of the host's, and whether they have ended.
    pub(crate) fn list(&self) -> Vec<(String, bool)> {
        let runs = self.by_id.borrow();
        let asked = runs.values().filter(|run| run.kind == RunKind::Asked);
        asked.map(|run| (run.id.clone(), run.state.borrow().ended.is_some())).collect()
    }
}
