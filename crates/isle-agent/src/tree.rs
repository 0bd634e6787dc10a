//! Which processes belong to a run, and ending all of them. In a container every run lives in a UTS
//! namespace of its own. That namespace is not there to give it a host name: it is a tag the kernel
//! hands to every descendant, double forks and new sessions included, and that nothing inside can
//! take off. Without namespaces every run has a supervisor instead.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use isle_wire::Exit;

use crate::family::{children, descendants, has_no_children, own_pid, parent};
use crate::runs::{Reaped, Run, RunKind};
use crate::serve::Shared;
use crate::spent::Spent;
use crate::supervise::Supervisor;
use crate::{code, place};

/// How the processes of a run are known.
pub(crate) enum Tree {
    /// By a tag each of them carries.
    Tagged(Tag),
    /// By whom they all descend from.
    Supervised(Supervisor),
    /// A call in an interpreter.
    Lodged(RefCell<Lodging>),
}

/// Where a call in an interpreter is.
#[derive(Clone)]
pub(crate) enum Lodging {
    /// It waits for its turn, or for its process.
    Waiting,
    /// In an interpreter that is its own and ends with it.
    Own(Rc<Run>),
    /// In one that outlives it: a context.
    Context(Rc<Run>),
    /// In a child of a fork server, with this number.
    Forked(i32),
}

impl Tree {
    /// The tag, where there is one.
    pub(crate) fn tag(&self) -> Option<Tag> {
        match self {
            Self::Tagged(tag) => Some(*tag),
            Self::Supervised(_) | Self::Lodged(_) => None,
        }
    }

    /// Where a call in an interpreter is.
    pub(crate) fn lodging(&self) -> Option<Lodging> {
        match self {
            Self::Lodged(lodging) => Some(lodging.borrow().clone()),
            Self::Tagged(_) | Self::Supervised(_) => None,
        }
    }

    /// A call in an interpreter found its place.
    pub(crate) fn lodge(&self, place: Lodging) {
        if let Self::Lodged(lodging) = self {
            lodging.replace(place);
        }
    }
}

/// Inode of a run's UTS namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tag(pub(crate) u64);

/// The tag of a process; `None` when it is gone or cannot be looked at.
fn tag_of(pid: i32) -> Option<Tag> {
    fs::metadata(format!("/proc/{pid}/ns/uts")).ok().map(|meta| Tag(meta.ino()))
}

/// Every process of the sandbox but the agent.
fn processes() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| pid > 1)
        .collect()
}

/// The living processes of a run. One that cannot be looked at (an unreadable program) counts when
/// no other tag claims it: it is better to end a stranger than to leave one behind.
fn members(agent: &Shared, run: &Run, tag: Tag) -> Vec<i32> {
    // The kernel gives the number of a namespace that is gone to the next one. A later run with this
    // run's tag therefore proves that nobody of this run is left; who has the tag now is of that run.
    if agent.runs.passed_on_tag(run) {
        return Vec::new();
    }
    let others = other_tags(agent, tag);
    processes()
        .into_iter()
        .filter(|&pid| !is_zombie(pid))
        .filter(|&pid| nearest_tag(pid).map_or_else(|| others.is_empty(), |found| found == tag))
        .collect()
}

/// The tag of a process, or of the nearest one above it that can be looked at.
fn nearest_tag(mut pid: i32) -> Option<Tag> {
    loop {
        if let Some(tag) = tag_of(pid) {
            return Some(tag);
        }
        pid = parent(pid).filter(|&parent| parent > 1)?;
    }
}

fn is_zombie(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Signals every process with a tag; returns how many there were.
fn signal_tagged(agent: &Shared, run: &Run, tag: Tag, signal: i32) -> usize {
    let members = members(agent, run, tag);
    for &pid in &members {
        // SAFETY: plain numbers; a process that is gone meanwhile is no error.
        unsafe { libc::kill(pid, signal) };
    }
    members.len()
}

/// Ends every process with a tag. Stopping all of them first keeps a fork bomb from outrunning the
/// killing: stopped processes hold their places below the limit on processes. Returns how many
/// were found at first.
async fn end_tagged(agent: &Shared, run: &Run, tag: Tag) -> u32 {
    let first = members(agent, run, tag).len();
    if first == 0 {
        return 0;
    }
    saw(run, first);
    let mut stopped = 0;
    for _ in 0..8 {
        let now = signal_tagged(agent, run, tag, libc::SIGSTOP);
        if now == stopped {
            break;
        }
        stopped = now;
    }
    // Nobody will wait for those that are killed: this is when what they took can be read. What is said of
    // the first process when it is reaped does not have it.
    let others = members(agent, run, tag).into_iter().filter(|&pid| pid != run.pid);
    let spent = others.map(Spent::of_living).fold(Spent::NOTHING, Spent::and);
    {
        let mut state = run.state.borrow_mut();
        state.others = state.others.and(spent);
    }
    while signal_tagged(agent, run, tag, libc::SIGKILL) > 0 {
        // Killed processes need a moment to go; the reaper runs meanwhile.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    u32::try_from(first).unwrap_or(u32::MAX)
}

/// So many processes of a run were seen at once.
fn saw(run: &Run, processes: usize) {
    let count = u64::try_from(processes).unwrap_or(u64::MAX);
    // What is seen of one of several commands, or of an interpreter, is seen of the run of the host.
    let whose = run.state.borrow().on_behalf.upgrade();
    match whose {
        Some(whose) => whose.state.borrow_mut().saw(count),
        None => run.state.borrow_mut().saw(count),
    }
}

fn other_tags(agent: &Shared, own: Tag) -> Vec<Tag> {
    // Interpreters live long: they must not keep a process that nobody claims alive.
    let asked = agent.runs.living().into_iter().filter(|run| run.kind != RunKind::Interpreter);
    asked.filter_map(|run| run.tree.tag()).filter(|&tag| tag != own).collect()
}

/// Ends every process of a run; returns when they are gone.
pub(crate) async fn end(agent: &Shared, run: &Run) {
    match &run.tree {
        Tree::Tagged(tag) => {
            end_tagged(agent, run, *tag).await;
        }
        Tree::Supervised(supervisor) => {
            supervisor.end();
            gone(run).await;
        }
        Tree::Lodged(_) => code::end(agent, run).await,
    }
}

/// Waits until the first process of a run, or its supervisor, was reaped.
async fn gone(run: &Run) {
    loop {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if run.state.borrow().exit.is_some() {
            return;
        }
        changed.await;
    }
}

/// What outlived the first process ends with it: work meant to go on is its own run. Returns how
/// many that were.
pub(crate) async fn end_leftovers(agent: &Shared, run: &Run) -> u32 {
    match &run.tree {
        Tree::Tagged(tag) => {
            // Being everyone's last parent, without a child of unknown descent the agent knows that
            // nobody is left.
            if has_no_children() || has_only_first_processes(agent) {
                return 0;
            }
            end_tagged(agent, run, *tag).await
        }
        Tree::Supervised(_) => run.state.borrow().leftovers,
        Tree::Lodged(_) => 0,
    }
}

/// The only process of a run, when there is just one.
pub(crate) fn only_process(agent: &Shared, run: &Run) -> Option<i32> {
    match &run.tree {
        // Whoever is left of it without being its child has come to the agent, with the tag.
        Tree::Tagged(tag) => {
            let adopted = children(own_pid());
            let living = agent.runs.living();
            let is_others = |pid: i32| {
                living.iter().any(|run| run.pid == pid) || tag_of(pid).is_some_and(|other| other != *tag)
            };
            // Of none, `/proc` does not tell children.
            let alone =
                !adopted.is_empty() && adopted.into_iter().all(is_others) && children(run.pid).is_empty();
            alone.then_some(run.pid)
        }
        Tree::Supervised(_) => match descendants(run.pid)[..] {
            [only] => Some(only),
            _ => None,
        },
        Tree::Lodged(_) => None,
    }
}

/// The first process of a run that lives.
pub(crate) fn first_process(run: &Run) -> Option<i32> {
    match &run.tree {
        Tree::Tagged(_) => Some(run.pid),
        // Orphans it has adopted come after its own child.
        Tree::Supervised(_) => children(run.pid).first().copied(),
        Tree::Lodged(_) => None,
    }
}

/// Ends the first process of a run, without waiting for it to go.
pub(crate) fn end_first(run: &Run) {
    match &run.tree {
        // SAFETY: plain numbers; a process that was not reaped yet keeps its number.
        Tree::Tagged(_) => unsafe {
            libc::kill(run.pid, libc::SIGKILL);
        },
        Tree::Supervised(supervisor) => supervisor.end(),
        Tree::Lodged(_) => {}
    }
}

/// Whether every child is the first process of a living run.
fn has_only_first_processes(agent: &Shared) -> bool {
    let children = children(own_pid());
    let living = agent.runs.living();
    let is_first = |pid: i32| living.iter().any(|run| run.pid == pid && run.state.borrow().exit.is_none());
    // Of none, either `/proc` does not tell children or they have just gone.
    !children.is_empty() && children.into_iter().all(is_first)
}

/// Signals every process of a run.
pub(crate) fn signal_all(agent: &Shared, run: &Run, signal: i32) {
    match &run.tree {
        Tree::Tagged(tag) => {
            signal_tagged(agent, run, *tag, signal);
        }
        Tree::Supervised(supervisor) => supervisor.signal_all(signal),
        Tree::Lodged(_) => code::signal_all(agent, run, signal),
    }
}

/// Signals a process group of a run: the one given, or that of its program.
pub(crate) fn signal_group(run: &Run, group: Option<i32>, signal: i32) {
    match &run.tree {
        // SAFETY: plain numbers. The first process of a run leads a group of its own number.
        Tree::Tagged(_) => unsafe {
            libc::kill(-group.unwrap_or(run.pid), signal);
        },
        Tree::Supervised(supervisor) => supervisor.signal_group(group, signal),
        Tree::Lodged(_) => code::signal_group(run, signal),
    }
}

/// The first process of a run, or its supervisor, was reaped.
pub(crate) fn note_end(agent: &Shared, run: &Run, reaped: Reaped) {
    let (reaped, others, leftovers) = match &run.tree {
        Tree::Tagged(_) => (reaped, Spent::NOTHING, 0),
        Tree::Supervised(supervisor) => match supervisor.farewell() {
            Some(farewell) => (farewell.reaped, farewell.others, farewell.leftovers),
            // Killed with its run: by the kernel for lack of memory, or by the host. What the program took
            // went to its grave with it.
            None => (Reaped { exit: Exit::Signal(libc::SIGKILL), ..reaped }, Spent::UNKNOWN, 0),
        },
        // Has no process the agent could reap.
        Tree::Lodged(_) => (reaped, Spent::NOTHING, 0),
    };
    {
        let mut state = run.state.borrow_mut();
        state.exit = Some(reaped);
        state.others = state.others.and(others);
        state.leftovers = leftovers;
    }
    run.changed.notify_waiters();
    end_strangers(agent);
}

/// Ends children that are no run's: what a supervisor that was killed left behind. Called whenever a
/// child has ended, because that is when others may have been adopted.
pub(crate) fn end_strangers(agent: &Shared) {
    if place::private().is_none() || has_no_children() {
        return;
    }
    for pid in children(own_pid()) {
        if agent.runs.by_pid(pid).is_none() {
            // SAFETY: plain numbers; a child that was not reaped yet keeps its number.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// The living run a process belongs to.
pub(crate) fn run_of(agent: &Shared, pid: i32) -> Option<Rc<Run>> {
    if let Some(call) = code::forked_call_of(agent, pid) {
        return Some(call);
    }
    let run =
        if place::private().is_none() { agent.runs.by_tag(tag_of(pid)?)? } else { first_above(agent, pid)? };
    // What happens in an interpreter happens to the call in it.
    let call = run.state.borrow().on_behalf.upgrade();
    Some(call.unwrap_or(run))
}

fn first_above(agent: &Shared, mut pid: i32) -> Option<Rc<Run>> {
    loop {
        if let Some(run) = agent.runs.by_pid(pid) {
            return Some(run);
        }
        pid = parent(pid).filter(|&parent| parent > 1)?;
    }
}
