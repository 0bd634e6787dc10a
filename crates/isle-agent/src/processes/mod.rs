//! Which processes belong to a run, and killing all of them. How they are found is a strategy, the
//! [`ProcessFinder`], chosen once by the agent's mode; what it finds for one run is behind that run's
//! [`RunProcesses`]. Every strategy covers double forks and new sessions.

pub(crate) mod descendants;
pub(crate) mod proc_stat;
pub(crate) mod proc_tree;
pub(crate) mod supervisor;
pub(crate) mod uts_tag;

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;

use isle_setup::landlock::Ruleset;
use isle_wire::Exit;

use crate::resource_usage::ResourceUsage;
use crate::run::{Reaped, Run};
use crate::serve::Shared;
use crate::{code, helper_process};
use proc_tree::{children, descendants, has_no_children, own_pid, parent};
use supervisor::Supervisor;
use uts_tag::Tag;

/// How the processes of a run are found.
#[derive(Debug)]
pub(crate) enum ProcessFinder {
    /// Every run has a UTS namespace of its own, which all its descendants inherit. The agent is PID 1 of
    /// its PID namespace, and every process it sees belongs to the sandbox.
    UtsTag,
    /// Every run has a supervisor process in a Landlock domain of its own, made with this ruleset: its
    /// signals reach the processes of the run and no other.
    Supervisor(Ruleset),
    /// Every run has a supervisor process that is the subreaper of all its descendants and walks `/proc`
    /// to find them. Needs nothing from the set-up.
    Descendants,
}

impl ProcessFinder {
    /// Whether every process the agent sees belongs to the sandbox, and is killed when the agent exits.
    pub(crate) fn owns_all_processes(&self) -> bool {
        match self {
            Self::UtsTag => true,
            Self::Supervisor(_) | Self::Descendants => false,
        }
    }
}

/// How the processes of one run are known.
pub(crate) enum RunProcesses {
    /// By the UTS namespace they are in.
    Tagged(Tag),
    /// They descend from a supervisor process.
    Supervised(Supervisor),
    /// A call in an interpreter, or a run of several commands: it has no process of its own.
    InInterpreter(RefCell<InterpreterSlot>),
}

/// Where a call in an interpreter is executed.
#[derive(Clone)]
pub(crate) enum InterpreterSlot {
    /// Nowhere yet: it waits for its turn, or for its process.
    Waiting,
    /// In an interpreter of its own, which exits with it.
    Own(Rc<Run>),
    /// In an interpreter that stays: a context.
    Context(Rc<Run>),
    /// In a child of a fork server, with this PID.
    Forked(i32),
}

impl RunProcesses {
    /// The tag, where there is one.
    pub(crate) fn tag(&self) -> Option<Tag> {
        match self {
            Self::Tagged(tag) => Some(*tag),
            Self::Supervised(_) | Self::InInterpreter(_) => None,
        }
    }

    /// Where a call in an interpreter is executed.
    pub(crate) fn interpreter_slot(&self) -> Option<InterpreterSlot> {
        match self {
            Self::InInterpreter(slot) => Some(slot.borrow().clone()),
            Self::Tagged(_) | Self::Supervised(_) => None,
        }
    }

    /// A call in an interpreter was assigned.
    pub(crate) fn set_interpreter_slot(&self, new: InterpreterSlot) {
        if let Self::InInterpreter(slot) = self {
            slot.replace(new);
        }
    }
}

/// Kills every process of a run; returns when none is left.
pub(crate) async fn kill_all(agent: &Shared, run: &Run) {
    match &run.processes {
        RunProcesses::Tagged(tag) => {
            uts_tag::kill_all(agent, run, *tag).await;
        }
        RunProcesses::Supervised(supervisor) => {
            supervisor.kill_all();
            first_process_reaped(run).await;
        }
        RunProcesses::InInterpreter(_) => code::kill(agent, run).await,
    }
}

/// Waits until the first process of a run, or its supervisor, was reaped.
async fn first_process_reaped(run: &Run) {
    loop {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if run.state.borrow().exit.is_some() {
            return;
        }
        changed.await;
    }
}

/// Kills what is left of a run after its first process has exited: background work is a run of its own.
/// Returns how many processes that were.
pub(crate) async fn kill_leftovers(agent: &Shared, run: &Run) -> u32 {
    match &run.processes {
        RunProcesses::Tagged(tag) => {
            // All orphans are reparented to the agent, so without a child of unknown origin none is left.
            if has_no_children() || has_only_first_processes(agent) {
                return 0;
            }
            uts_tag::kill_all(agent, run, *tag).await
        }
        RunProcesses::Supervised(_) => run.state.borrow().leftovers,
        RunProcesses::InInterpreter(_) => 0,
    }
}

/// Whether every child is the first process of a run that has not exited.
fn has_only_first_processes(agent: &Shared) -> bool {
    let children = children(own_pid());
    let active = agent.runs.active();
    let is_first = |pid: i32| active.iter().any(|run| run.pid == pid && run.state.borrow().exit.is_none());
    // An empty list means that `/proc` does not list children, or that they have just exited.
    !children.is_empty() && children.into_iter().all(is_first)
}

/// The only process of a run, when there is exactly one.
pub(crate) fn only_process(agent: &Shared, run: &Run) -> Option<i32> {
    match &run.processes {
        // Processes of the run that are not its children were reparented to the agent and have the tag.
        RunProcesses::Tagged(tag) => {
            let adopted = children(own_pid());
            let active = agent.runs.active();
            let is_others = |pid: i32| {
                active.iter().any(|run| run.pid == pid)
                    || uts_tag::tag_of(pid).is_some_and(|other| other != *tag)
            };
            // An empty list means that `/proc` does not list children.
            let alone =
                !adopted.is_empty() && adopted.into_iter().all(is_others) && children(run.pid).is_empty();
            alone.then_some(run.pid)
        }
        RunProcesses::Supervised(_) => match descendants(run.pid)[..] {
            [only] => Some(only),
            _ => None,
        },
        RunProcesses::InInterpreter(_) => None,
    }
}

/// The first process of an active run.
pub(crate) fn first_process(run: &Run) -> Option<i32> {
    match &run.processes {
        RunProcesses::Tagged(_) => Some(run.pid),
        // Orphans the supervisor has adopted come after its own child.
        RunProcesses::Supervised(_) => children(run.pid).first().copied(),
        RunProcesses::InInterpreter(_) => None,
    }
}

/// Kills the first process of a run, without waiting for it.
pub(crate) fn kill_first_process(run: &Run) {
    match &run.processes {
        // SAFETY: plain numbers; a process that was not reaped yet keeps its PID.
        RunProcesses::Tagged(_) => unsafe {
            libc::kill(run.pid, libc::SIGKILL);
        },
        RunProcesses::Supervised(supervisor) => supervisor.kill_all(),
        RunProcesses::InInterpreter(_) => {}
    }
}

/// Signals every process of a run.
pub(crate) fn signal_all(agent: &Shared, run: &Run, signal: i32) {
    match &run.processes {
        RunProcesses::Tagged(tag) => {
            uts_tag::signal_all(agent, run, *tag, signal);
        }
        RunProcesses::Supervised(supervisor) => supervisor.signal_all(signal),
        RunProcesses::InInterpreter(_) => code::signal_all(agent, run, signal),
    }
}

/// Signals a process group of a run: the given one, or that of its program.
pub(crate) fn signal_group(run: &Run, group: Option<i32>, signal: i32) {
    match &run.processes {
        // SAFETY: plain numbers. The first process of a run leads a group with its own PID.
        RunProcesses::Tagged(_) => unsafe {
            libc::kill(-group.unwrap_or(run.pid), signal);
        },
        RunProcesses::Supervised(supervisor) => supervisor.signal_group(group, signal),
        RunProcesses::InInterpreter(_) => code::signal_group(run, signal),
    }
}

/// The first process of a run, or its supervisor, was reaped.
pub(crate) fn first_process_exited(agent: &Shared, run: &Run, reaped: Reaped) {
    let (reaped, others, leftovers) = match &run.processes {
        RunProcesses::Tagged(_) => (reaped, ResourceUsage::ZERO, 0),
        RunProcesses::Supervised(supervisor) => match supervisor.result() {
            Some(result) => (result.reaped, result.others, result.leftovers),
            // Killed with its run, by the OOM killer or by the host, before it could report the usage.
            None => (Reaped { exit: Exit::Signal(libc::SIGKILL), ..reaped }, ResourceUsage::UNKNOWN, 0),
        },
        // Has no process the agent could reap.
        RunProcesses::InInterpreter(_) => (reaped, ResourceUsage::ZERO, 0),
    };
    {
        let mut state = run.state.borrow_mut();
        state.exit = Some(reaped);
        state.others = state.others.and(others);
        state.leftovers = leftovers;
    }
    run.changed.notify_waiters();
    kill_orphans(agent);
}

/// Kills children that belong to no run: descendants of a supervisor that was killed. Called whenever a
/// child has exited, because that is when others may have been reparented to the agent.
pub(crate) fn kill_orphans(agent: &Shared) {
    if agent.mode.processes.owns_all_processes() || has_no_children() {
        return;
    }
    for pid in children(own_pid()) {
        if agent.runs.by_pid(pid).is_none() && !helper_process::is_helper(pid) {
            // SAFETY: plain numbers; a child that was not reaped yet keeps its PID.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// The active run a process belongs to.
pub(crate) fn run_of(agent: &Shared, pid: i32) -> Option<Rc<Run>> {
    if let Some(call) = code::forked_call_of(agent, pid) {
        return Some(call);
    }
    let run = match agent.mode.processes {
        ProcessFinder::UtsTag => agent.runs.by_tag(uts_tag::tag_of(pid)?)?,
        ProcessFinder::Supervisor(_) | ProcessFinder::Descendants => run_of_ancestor(agent, pid)?,
    };
    // A call in an interpreter is responsible for what the interpreter does.
    let call = run.state.borrow().on_behalf_of.upgrade();
    Some(call.unwrap_or(run))
}

fn run_of_ancestor(agent: &Shared, mut pid: i32) -> Option<Rc<Run>> {
    loop {
        if let Some(run) = agent.runs.by_pid(pid) {
            return Some(run);
        }
        pid = parent(pid).filter(|&parent| parent > 1)?;
    }
}
