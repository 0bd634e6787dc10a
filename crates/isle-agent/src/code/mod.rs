//! Code in interpreters. A call without a context is executed in a process of its own, which was prestarted
//! or is forked from one that was. A call in a context is executed in an interpreter that stays.
//! Interpreters are hidden runs: they are found, reaped and killed as every run is. A call is a run without
//! a process of its own.

mod channel;
mod contexts;
mod fork_server;
mod interpreter;
mod read_now;
mod start;
mod stateless;

use std::cell::{Cell as Flag, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use isle_wire::{CodeLanguage, CodeRequest, Failure, FrameError, GuestUser, StdinMode, Stream};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::time::Instant as Deadline;

use crate::async_fd::register;
use crate::processes::proc_tree::parent;
use crate::processes::{self, InterpreterSlot, RunProcesses};
use crate::run::{KillReason, Run, RunKind, RunState, StreamRole, expired, finish, follow};
use crate::serve::{Cell, Shared};
use crate::stdin::Stdin;
use contexts::{Context, in_context};
pub(crate) use contexts::{act, list};
use fork_server::{ForkServer, killed};
use interpreter::Interpreter;
use stateless::stateless;

/// Timeout for an interrupted call to finish before its interpreter is killed.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(2);

/// All interpreters.
#[derive(Default)]
pub(crate) struct Interpreters {
    contexts: RefCell<BTreeMap<String, Rc<Context>>>,
    servers: RefCell<HashMap<InterpreterKind, Rc<ForkServer>>>,
    spares: RefCell<HashMap<InterpreterKind, Rc<Interpreter>>>,
    /// Fork servers do not work here: a module of Python is missing.
    unforkable: Flag<bool>,
    count: Flag<u64>,
}

/// What an interpreter must have in common with a call to execute it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct InterpreterKind {
    language: CodeLanguage,
    root: bool,
    program: Vec<u8>,
}

impl InterpreterKind {
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
    // Its own pipe when it has input: opened here, because the host may send before a process exists.
    let input = match request.exec.stdin {
        StdinMode::Stream if request.context.is_none() => input_pipe().map(Some),
        StdinMode::Stream | StdinMode::Null => Ok(None),
    };
    let (stdin, program_end, failed) = match input {
        Ok(Some((stdin, program_end))) => (stdin, Some(program_end), None),
        Ok(None) => (Stdin::default(), None, None),
        Err(error) => (Stdin::default(), None, Some(crate::files::failure(&error, "open pipes"))),
    };
    let failed = failed.or_else(|| agent.pause.check_not_paused().err());
    let run = Rc::new(Run {
        id: request.exec.run.clone(),
        pid: 0,
        processes: RunProcesses::InInterpreter(RefCell::new(InterpreterSlot::Waiting)),
        started: Instant::now(),
        on_hangup: request.exec.on_hangup,
        limits: agent.mode.run_limits(request.exec.limits),
        kind: RunKind::Requested,
        stdin,
        keep_input: false,
        state: Cell::new(RunState::new(request.exec.retain)),
        changed: tokio::sync::Notify::new(),
    });
    agent.runs.insert(run.clone());
    if agent.runs.is_killed_before_start(&run.id) {
        run.state.borrow_mut().killed.get_or_insert(KillReason::Requested);
    }
    if let Some(failure) = failed {
        fail(&agent, &run, failure);
    }
    if run.state.borrow().ended.is_none() {
        tokio::task::spawn_local(perform(agent.clone(), run.clone(), request, program_end));
    }
    let position = run.state.borrow().fresh.end();
    follow(stream, agent, run, StreamRole::Starter, position).await
}

fn input_pipe() -> std::io::Result<(Stdin, OwnedFd)> {
    let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((Stdin::pipe(Some(register(ours)?)), theirs))
}

/// Finishes a call that could not be started.
fn fail(agent: &Shared, run: &Run, failure: Failure) {
    {
        let mut state = run.state.borrow_mut();
        state.failed = Some(failure);
        state.exit = Some(killed());
    }
    finish(agent, run, 0);
}

async fn perform(agent: Shared, run: Rc<Run>, request: CodeRequest, stdin: Option<OwnedFd>) {
    let limit = request.exec.timeout_ms.map(Duration::from_millis);
    let deadline = limit.map(|limit| Deadline::now() + limit);
    if request.exec.make_cwd
        && let Err(failure) = crate::files::make_directory(&agent.mode, &request.exec.cwd, request.exec.user)
    {
        return fail(&agent, &run, failure);
    }
    match &request.context {
        Some(name) => in_context(&agent, &run, &request, name, deadline).await,
        None => stateless(&agent, &run, &request, stdin, deadline).await,
    }
}

/// Sends a call to its interpreter and waits until it has finished or timed out.
async fn execute(
    agent: &Shared,
    run: &Rc<Run>,
    interpreter: &Interpreter,
    message: &[u8],
    deadline: Option<Deadline>,
) {
    if run.state.borrow().killed.is_some() {
        return processes::kill_all(agent, run).await;
    }
    let mut sending = pin!(interpreter.control.send(message));
    let mut sent = false;
    loop {
        tokio::select! {
            biased;
            () = finished(run) => return,
            _ = &mut sending, if !sent => sent = true,
            () = expired(deadline) => break,
        }
    }
    run.state.borrow_mut().killed = Some(KillReason::TimedOut);
    processes::kill_all(agent, run).await;
    finished(run).await;
}

/// Resolves when a run has a result.
async fn finished(run: &Run) {
    loop {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if run.state.borrow().ended.is_some() {
            return;
        }
        changed.await;
    }
}

/// Resolves when a run is to be killed.
async fn killed_by_request(run: &Run) {
    loop {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if run.state.borrow().killed.is_some() {
            return;
        }
        changed.await;
    }
}

/// Kills a call. In a context it is interrupted, and only when that does not help its interpreter is killed.
pub(crate) async fn kill(agent: &Shared, run: &Run) {
    match run.processes.interpreter_slot() {
        None => {}
        Some(InterpreterSlot::Waiting) => {
            run.changed.notify_waiters();
            tokio::task::yield_now().await;
        }
        Some(InterpreterSlot::Own(process)) => Box::pin(processes::kill_all(agent, &process)).await,
        Some(InterpreterSlot::Context(process)) => {
            if run.state.borrow().ended.is_some() {
                return;
            }
            processes::signal_group(&process, None, libc::SIGINT);
            if tokio::time::timeout(INTERRUPT_TIMEOUT, finished(run)).await.is_err() {
                Box::pin(processes::kill_all(agent, &process)).await;
            }
        }
        Some(InterpreterSlot::Forked(pid)) => {
            fork_server::kill_family(pid);
            if tokio::time::timeout(INTERRUPT_TIMEOUT, finished(run)).await.is_err()
                && let Some(server) = server_of(agent, pid)
            {
                // The server reports that it has exited, and code of the sandbox can stop the server.
                Box::pin(processes::kill_all(agent, &server.process)).await;
            }
        }
    }
}

/// Signals every process of a call.
pub(crate) fn signal_all(agent: &Shared, run: &Run, signal: i32) {
    match run.processes.interpreter_slot() {
        None | Some(InterpreterSlot::Waiting) => {}
        Some(InterpreterSlot::Own(process)) => processes::signal_all(agent, &process, signal),
        Some(InterpreterSlot::Context(process)) => {
            processes::signal_group(&process, None, in_context_signal(signal))
        }
        Some(InterpreterSlot::Forked(pid)) => {
            fork_server::signal_family(pid, signal);
        }
    }
}

/// Signals the process group of a call.
pub(crate) fn signal_group(run: &Run, signal: i32) {
    match run.processes.interpreter_slot() {
        None | Some(InterpreterSlot::Waiting) => {}
        Some(InterpreterSlot::Own(process)) => processes::signal_group(&process, None, signal),
        Some(InterpreterSlot::Context(process)) => {
            processes::signal_group(&process, None, in_context_signal(signal))
        }
        // SAFETY: plain numbers; a call leads a process group with its own PID.
        Some(InterpreterSlot::Forked(pid)) => unsafe {
            libc::kill(-pid, signal);
        },
    }
}

/// A request to terminate a call is not meant for its context.
fn in_context_signal(signal: i32) -> i32 {
    if signal == libc::SIGTERM { libc::SIGINT } else { signal }
}

/// The fork server of a call.
fn server_of(agent: &Shared, pid: i32) -> Option<Rc<ForkServer>> {
    agent.code.servers.borrow().values().find(|server| server.call_of(pid).is_some()).cloned()
}

/// The forked call a process belongs to.
pub(crate) fn forked_call_of(agent: &Shared, mut pid: i32) -> Option<Rc<Run>> {
    let servers: Vec<Rc<ForkServer>> = agent.code.servers.borrow().values().cloned().collect();
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
