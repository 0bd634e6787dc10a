//! Code in interpreters. A call without a context runs in a process of its own that is thrown away;
//! it is quick because that process, or the one it is forked from, was started before. A call in a
//! context runs in an interpreter that stays. Interpreters are hidden runs: they are tagged,
//! supervised, reaped and ended as every run is. A call is a run that has no process of its own.

mod alone;
mod contexts;
mod control;
mod fork;
mod outputs;
mod process;
mod whole;

use std::cell::{Cell as Flag, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use isle_wire::{CodeLanguage, CodeRequest, Failure, FrameError, GuestUser, StdinMode, Stream};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::time::Instant as Deadline;

use crate::entrance::Entrance;
use crate::family::parent;
use crate::run::{Whose, expired, finish, follow};
use crate::runs::{Run, RunKind, RunState};
use crate::serve::{Cell, Shared};
use crate::tree::{self, Lodging, Tree};
use crate::watched::watch;
use alone::alone;
use contexts::{Context, in_context};
pub(crate) use contexts::{act, list};
use fork::{Server, killed};
use whole::Interpreter;

/// How long an interrupted call may take to end before its interpreter does.
const GRACE: Duration = Duration::from_secs(2);

/// Everything that is kept.
#[derive(Default)]
pub(crate) struct Interpreters {
    contexts: RefCell<BTreeMap<String, Rc<Context>>>,
    servers: RefCell<HashMap<Kind, Rc<Server>>>,
    spares: RefCell<HashMap<Kind, Rc<Interpreter>>>,
    /// Fork servers do not work here: a part of Python is missing.
    unforkable: Flag<bool>,
    count: Flag<u64>,
}

/// What an interpreter must have in common with a call to serve it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    language: CodeLanguage,
    root: bool,
    program: Vec<u8>,
}

impl Kind {
    fn of(request: &CodeRequest) -> Self {
        Self {
            language: request.language,
            root: request.exec.user == GuestUser::Root,
            program: request.exec.argv.first().map(|program| program.to_vec()).unwrap_or_default(),
        }
    }
}

impl Interpreters {
    fn fresh_name(&self) -> String {
        self.count.set(self.count.get() + 1);
        format!("interpreter-{}", self.count.get())
    }
}

/// Starts a call and serves its stream.
pub(crate) async fn run(stream: Stream, agent: Shared, request: CodeRequest) -> Result<(), FrameError> {
    for run in &request.exec.forget {
        agent.runs.forget(run);
    }
    // Its own pipe when it has input: made here, because the host may send before anything runs.
    let input = match request.exec.stdin {
        StdinMode::Stream if request.context.is_none() => input_pipe().map(Some),
        StdinMode::Stream | StdinMode::Null => Ok(None),
    };
    let (entrance, stdin, failed) = match input {
        Ok(Some((entrance, stdin))) => (entrance, Some(stdin), None),
        Ok(None) => (Entrance::default(), None, None),
        Err(error) => (Entrance::default(), None, Some(crate::files::failure(&error, "open pipes"))),
    };
    let failed = failed.or_else(|| agent.pause.refuse().err());
    let run = Rc::new(Run {
        id: request.exec.run.clone(),
        pid: 0,
        tree: Tree::Lodged(RefCell::new(Lodging::Waiting)),
        started: Instant::now(),
        on_hangup: request.exec.on_hangup,
        limits: crate::spawn::limits(request.exec.limits),
        kind: RunKind::Asked,
        entrance,
        keep_input: false,
        state: Cell::new(RunState::new(request.exec.retain)),
        changed: tokio::sync::Notify::new(),
    });
    agent.runs.insert(run.clone());
    if agent.runs.is_condemned(&run.id) {
        run.state.borrow_mut().killed.get_or_insert(false);
    }
    if let Some(failure) = failed {
        fail(&run, failure);
    }
    if run.state.borrow().ended.is_none() {
        tokio::task::spawn_local(perform(agent.clone(), run.clone(), request, stdin));
    }
    let position = run.state.borrow().fresh.end();
    follow(stream, agent, run, Whose::Starter, position).await
}

fn input_pipe() -> std::io::Result<(Entrance, OwnedFd)> {
    let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((Entrance::pipe(Some(watch(ours)?)), theirs))
}

/// A call that could not be started.
fn fail(run: &Run, failure: Failure) {
    {
        let mut state = run.state.borrow_mut();
        state.failed = Some(failure);
        state.exit = Some(killed());
    }
    finish(run, 0);
}

async fn perform(agent: Shared, run: Rc<Run>, request: CodeRequest, stdin: Option<OwnedFd>) {
    let limit = request.exec.timeout_ms.map(Duration::from_millis);
    let deadline = limit.map(|limit| Deadline::now() + limit);
    if request.exec.make_cwd
        && let Err(failure) = crate::files::make_directory(&request.exec.cwd, request.exec.user)
    {
        return fail(&run, failure);
    }
    match &request.context {
        Some(name) => in_context(&agent, &run, &request, name, deadline).await,
        None => alone(&agent, &run, &request, stdin, deadline).await,
    }
}

/// Sends a call to its interpreter and sees it end, by itself or by its time.
async fn carry(
    agent: &Shared,
    run: &Rc<Run>,
    interpreter: &Interpreter,
    words: &[u8],
    deadline: Option<Deadline>,
) {
    if run.state.borrow().killed.is_some() {
        return tree::end(agent, run).await;
    }
    let mut sending = pin!(interpreter.control.send(words));
    let mut sent = false;
    loop {
        tokio::select! {
            biased;
            () = over(run) => return,
            _ = &mut sending, if !sent => sent = true,
            () = expired(deadline) => break,
        }
    }
    run.state.borrow_mut().killed = Some(true);
    tree::end(agent, run).await;
    over(run).await;
}

/// Resolves when a run has ended.
async fn over(run: &Run) {
    loop {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if run.state.borrow().ended.is_some() {
            return;
        }
        changed.await;
    }
}

/// Resolves when somebody wants a run to end.
async fn unwanted(run: &Run) {
    loop {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if run.state.borrow().killed.is_some() {
            return;
        }
        changed.await;
    }
}

/// Ends a call. In a context it is interrupted, and only when that does not help its interpreter
/// ends with it.
pub(crate) async fn end(agent: &Shared, run: &Run) {
    match run.tree.lodging() {
        None => {}
        Some(Lodging::Waiting) => {
            run.changed.notify_waiters();
            tokio::task::yield_now().await;
        }
        Some(Lodging::Own(process)) => Box::pin(tree::end(agent, &process)).await,
        Some(Lodging::Context(process)) => {
            if run.state.borrow().ended.is_some() {
                return;
            }
            tree::signal_group(&process, None, libc::SIGINT);
            if tokio::time::timeout(GRACE, over(run)).await.is_err() {
                Box::pin(tree::end(agent, &process)).await;
            }
        }
        Some(Lodging::Forked(pid)) => {
            fork::end_family(pid);
            tokio::time::timeout(GRACE, over(run)).await.ok();
        }
    }
}

/// Signals every process of a call.
pub(crate) fn signal_all(agent: &Shared, run: &Run, signal: i32) {
    match run.tree.lodging() {
        None | Some(Lodging::Waiting) => {}
        Some(Lodging::Own(process)) => tree::signal_all(agent, &process, signal),
        Some(Lodging::Context(process)) => tree::signal_group(&process, None, in_context_signal(signal)),
        Some(Lodging::Forked(pid)) => {
            fork::signal_family(pid, signal);
        }
    }
}

/// Signals the process group of a call.
pub(crate) fn signal_group(run: &Run, signal: i32) {
    match run.tree.lodging() {
        None | Some(Lodging::Waiting) => {}
        Some(Lodging::Own(process)) => tree::signal_group(&process, None, signal),
        Some(Lodging::Context(process)) => tree::signal_group(&process, None, in_context_signal(signal)),
        // SAFETY: plain numbers; a call leads a group of its own number.
        Some(Lodging::Forked(pid)) => unsafe {
            libc::kill(-pid, signal);
        },
    }
}

/// Whoever asks a call to end does not mean its context.
fn in_context_signal(signal: i32) -> i32 {
    if signal == libc::SIGTERM { libc::SIGINT } else { signal }
}

/// The forked call a process belongs to.
pub(crate) fn forked_call_of(agent: &Shared, mut pid: i32) -> Option<Rc<Run>> {
    let servers: Vec<Rc<Server>> = agent.code.servers.borrow().values().cloned().collect();
    if servers.iter().all(|server| server.is_idle()) {
        return None;
    }
    loop {
        if let Some(call) = servers.iter().find_map(|server| server.call_of(pid)) {
            return Some(call);
        }
        pid = parent(pid).filter(|&parent| parent > 1)?;
    }
}
