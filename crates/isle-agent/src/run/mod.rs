//! Runs. A run is one command, one call in an interpreter, or several commands in a row. A pump reads its
//! output and collects its result; followers send both to the host.

mod attach;
mod exec;
mod follow;
mod output_reader;
mod pump;
mod registry;
mod signal;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Weak;
use std::time::Instant;

use bytes::Bytes;
use isle_wire::{ContextFate, Ended, Exit, Failure, OnHangup, RunLimits, StepEnd};
use tokio::sync::Notify;

use crate::output::{Fresh, Retained};
use crate::processes::RunProcesses;
use crate::resource_usage::ResourceUsage;
use crate::stdin::Stdin;

pub(crate) use attach::attach;
pub(crate) use exec::{exec, register, registered};
pub(crate) use follow::{StreamRole, follow};
pub(crate) use output_reader::Output;
pub(crate) use pump::{drain, expired, finish, keep};
pub(crate) use registry::Runs;
pub(crate) use signal::signal;

/// How much is read at a time.
const CHUNK: usize = 64 * 1024;

/// One run.
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) pid: i32,
    pub(crate) processes: RunProcesses,
    pub(crate) started: Instant,
    pub(crate) on_hangup: OnHangup,
    pub(crate) limits: RunLimits,
    pub(crate) kind: RunKind,
    pub(crate) stdin: Stdin,
    /// Its input stays open when the stream that started it ends.
    pub(crate) keep_input: bool,
    pub(crate) state: RefCell<RunState>,
    /// Something in `state` changed.
    pub(crate) changed: Notify,
}

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// Requested by the host.
    Requested,
    /// An interpreter, in which calls of the host are executed.
    Interpreter,
    /// One of several commands of a run.
    Step,
}

/// The mutable part of a run.
pub(crate) struct RunState {
    pub(crate) stdout: Retained,
    pub(crate) stderr: Retained,
    pub(crate) fresh: Fresh,
    /// Where each follower is in `fresh`.
    pub(crate) followers: HashMap<u64, u64>,
    pub(crate) next_follower: u64,
    /// Set when its first process was reaped.
    pub(crate) exit: Option<Reaped>,
    /// Processes its supervisor killed after the program had exited.
    pub(crate) leftovers: u32,
    /// Its result; set last.
    pub(crate) ended: Option<Ended>,
    /// Why its processes are killed, if they are.
    pub(crate) killed: Option<KillReason>,
    /// System calls that seccomp denied, by number.
    pub(crate) denied_calls: BTreeMap<i32, u64>,
    /// How many of its processes the agent killed at the memory limit.
    pub(crate) killed_for_memory: u32,
    /// Usage of those of its processes that its first one did not wait for.
    pub(crate) others: ResourceUsage,
    /// The same at the limit on processes.
    pub(crate) killed_for_processes: u32,
    /// Why it could not be started; set together with `ended`.
    pub(crate) failed: Option<Failure>,
    /// What an interpreter returned beside output.
    pub(crate) report: Option<Bytes>,
    /// What happened to the context it ran in.
    pub(crate) context: Option<ContextFate>,
    /// Results of its commands, when it has several.
    pub(crate) steps: Vec<StepEnd>,
    /// Of an interpreter: the call in it. Of one of several commands: the run they belong to.
    pub(crate) on_behalf_of: Weak<Run>,
    /// How often followers have to report that a program looks up a name.
    pub(crate) name_lookups: u64,
    /// When its tasks were last counted.
    pub(crate) tasks_counted: Option<Instant>,
    /// The largest number of its processes and threads at one time.
    pub(crate) most_tasks: u32,
}

/// Why the processes of a run are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillReason {
    /// The host asked for it, or is gone.
    Requested,
    /// Its deadline has passed.
    TimedOut,
}

/// What `wait4` reported about a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reaped {
    pub(crate) exit: Exit,
    pub(crate) usage: ResourceUsage,
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
            denied_calls: BTreeMap::new(),
            killed_for_memory: 0,
            others: ResourceUsage::ZERO,
            killed_for_processes: 0,
            failed: None,
            report: None,
            context: None,
            steps: Vec::new(),
            on_behalf_of: Weak::new(),
            name_lookups: 0,
            tasks_counted: None,
            most_tasks: 1,
        }
    }

    /// Records a number of processes and threads at one time.
    pub(crate) fn saw_tasks(&mut self, tasks: u64) {
        self.most_tasks = self.most_tasks.max(u32::try_from(tasks).unwrap_or(u32::MAX));
    }

    /// Drops chunks that every follower has sent; without followers nothing is kept.
    pub(crate) fn trim(&mut self) {
        let seen = self.followers.values().copied().min().unwrap_or_else(|| self.fresh.end());
        self.fresh.seen_until(seen);
    }
}
