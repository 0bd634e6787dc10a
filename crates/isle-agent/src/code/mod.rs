//! Code in interpreters. A call without a context runs in a process of its own that is thrown away;
//! it is quick because that process, or the one it is forked from, was started before. A call in a
//! context runs in an interpreter that stays. Interpreters are hidden runs: they are tagged,
//! supervised, reaped and ended as every run is. A call is a run that has no process of its own.

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

use isle_wire::{
    CodeLanguage, CodeRequest, ContextAction, ContextEntry, ContextFate, ContextList, ContextRequest,
    ExecRequest, Failure, FailureKind, FrameError, GuestUser, Reply, RunLimits, StdinMode, Stream,
};
use minicbor::bytes::ByteVec;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::time::Instant as Deadline;

use crate::entrance::{Entrance, write_all};
use crate::family::parent;
use crate::run::{Whose, expired, finish, follow};
use crate::runs::{Run, RunKind, RunState};
use crate::serve::{Cell, Shared};
use crate::tree::{self, Lodging, Tree};
use crate::watched::watch;
use control::{Taken, call};
use fork::{Handed, Server, killed};
use process::{Mode, start};
use whole::Interpreter;

/// Contexts a sandbox may have.
const MOST_CONTEXTS: usize = 32;
/// How long an interrupted call may take to end before its interpreter does.
const GRACE: Duration = Duration::from_secs(2);
/// How long an interpreter is kept ready after the last call.
const KEPT_WARM: Duration = Duration::from_secs(600);

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

/// One context.
struct Context {
    name: String,
    language: CodeLanguage,
    user: GuestUser,
    interpreter: RefCell<Option<Rc<Interpreter>>>,
    /// Calls come one after another, in the order they arrived.
    turn: tokio::sync::Mutex<()>,
    calls: Flag<u64>,
    made: Instant,
}

impl Context {
    fn living(&self) -> Option<Rc<Interpreter>> {
        self.interpreter.borrow().clone().filter(|interpreter| !interpreter.is_gone())
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

/// The context of a call; made when there is none.
fn context_of(agent: &Shared, request: &CodeRequest, name: &str) -> Result<Rc<Context>, Failure> {
    let mut contexts = agent.code.contexts.borrow_mut();
    if let Some(context) = contexts.get(name) {
        if context.language != request.language || context.user != request.exec.user {
            let doing = format!("use context {name} for another language or user");
            return Err(Failure { kind: FailureKind::OtherContext, errno: libc::EINVAL, doing });
        }
        return Ok(context.clone());
    }
    if contexts.len() >= MOST_CONTEXTS {
        let doing = format!("make more than {MOST_CONTEXTS} contexts");
        return Err(Failure { kind: FailureKind::TooManyContexts, errno: libc::EAGAIN, doing });
    }
    let context = Rc::new(Context {
        name: name.to_owned(),
        language: request.language,
        user: request.exec.user,
        interpreter: RefCell::default(),
        turn: tokio::sync::Mutex::new(()),
        calls: Flag::new(0),
        made: Instant::now(),
    });
    contexts.insert(name.to_owned(), context.clone());
    Ok(context)
}

async fn in_context(
    agent: &Shared,
    run: &Rc<Run>,
    request: &CodeRequest,
    name: &str,
    deadline: Option<Deadline>,
) {
    let context = match context_of(agent, request, name) {
        Ok(context) => context,
        Err(failure) => return fail(run, failure),
    };
    let turn = tokio::select! {
        biased;
        () = unwanted(run) => None,
        turn = context.turn.lock() => Some(turn),
        () = expired(deadline) => {
            run.state.borrow_mut().killed = Some(true);
            None
        }
    };
    let Some(_turn) = turn else {
        run.state.borrow_mut().exit = Some(killed());
        return finish(run, 0);
    };
    let (interpreter, fate) = match context.living() {
        Some(interpreter) => (interpreter, ContextFate::Kept),
        None => {
            let exec = ExecRequest { stdin: StdinMode::Null, ..request.exec.clone() };
            match start(agent, request.language, Mode::Context, &exec).await {
                Ok(started) => {
                    let interpreter =
                        Interpreter::new(agent, started.process, started.control, started.output);
                    context.interpreter.replace(Some(interpreter.clone()));
                    (interpreter, ContextFate::New)
                }
                Err(failure) => {
                    if context.calls.get() == 0 {
                        agent.code.contexts.borrow_mut().remove(name);
                    }
                    return fail(run, failure);
                }
            }
        }
    };
    context.calls.set(context.calls.get() + 1);
    run.state.borrow_mut().context = Some(fate);
    run.tree.lodge(Lodging::Context(interpreter.process.clone()));
    interpreter.begin(run);
    let taken = if fate == ContextFate::New { Taken::Nothing } else { Taken::Given };
    carry(agent, run, &interpreter, &call(request, taken), deadline).await;
}

/// A call that leaves nothing behind.
async fn alone(
    agent: &Shared,
    run: &Rc<Run>,
    request: &CodeRequest,
    stdin: Option<OwnedFd>,
    deadline: Option<Deadline>,
) {
    // Limits of its own are set before a program starts, so such a call starts its own.
    let plain = request.exec.limits == RunLimits::default();
    let warm = plain && request.keep_warm && !request.given_env.iter().any(|entry| is_read_at_start(entry));
    let stdin = if warm && request.language == CodeLanguage::Python && !agent.code.unforkable.get() {
        let copy = stdin.as_ref().and_then(|stdin| stdin.try_clone().ok());
        match server(agent, request).await {
            Err(failure) => return fail(run, failure),
            Ok(server) => match server.run(run, request, copy, deadline).await {
                Handed::Refused => agent.code.unforkable.set(true),
                Handed::Taken | Handed::Lost => return,
            },
        }
        stdin
    } else {
        stdin
    };
    let spare = if warm && stdin.is_none() {
        agent.code.spares.borrow_mut().remove(&Kind::of(request)).filter(|spare| !spare.is_gone())
    } else {
        None
    };
    let (interpreter, taken) = match spare {
        Some(spare) => (spare, Taken::Everything),
        None => match start_with_input(agent, request, stdin).await {
            Ok(interpreter) => (interpreter, Taken::Nothing),
            Err(failure) => return fail(run, failure),
        },
    };
    run.tree.lodge(Lodging::Own(interpreter.process.clone()));
    interpreter.begin(run);
    carry(agent, run, &interpreter, &call(request, taken), deadline).await;
    if warm && request.language == CodeLanguage::Node {
        prepare_spare(agent, request).await;
    }
}

/// An interpreter for one call, with the input the call has.
async fn start_with_input(
    agent: &Shared,
    request: &CodeRequest,
    stdin: Option<OwnedFd>,
) -> Result<Rc<Interpreter>, Failure> {
    let mode = if stdin.is_some() { StdinMode::Stream } else { StdinMode::Null };
    let exec = ExecRequest { stdin: mode, ..request.exec.clone() };
    let started = start(agent, request.language, Mode::Once, &exec).await?;
    if let (Some(from), Some(to)) = (stdin, started.stdin) {
        tokio::task::spawn_local(pour(from, to));
    }
    Ok(Interpreter::new(agent, started.process, started.control, started.output))
}

/// Copies the input of a call to the interpreter that was started for it.
async fn pour(from: OwnedFd, to: tokio::io::unix::AsyncFd<OwnedFd>) {
    if rustix::io::ioctl_fionbio(&from, true).is_err() {
        return;
    }
    let Ok(from) = watch(from) else { return };
    let mut buffer = vec![0u8; 64 * 1024];
    loop {
        let Ok(mut ready) = from.readable().await else { return };
        match ready.try_io(|inner| rustix::io::read(inner.get_ref(), &mut buffer[..]).map_err(Into::into)) {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(count)) => {
                if !write_all(&to, &buffer[..count]).await {
                    return;
                }
            }
            Err(_would_block) => {}
        }
    }
}

/// Variables an interpreter looks at only when it starts.
fn is_read_at_start(entry: &[u8]) -> bool {
    let name = entry.split(|&byte| byte == b'=').next().unwrap_or_default();
    name.starts_with(b"PYTHON")
        || name.starts_with(b"NODE")
        || name.starts_with(b"LC_")
        || [&b"HOME"[..], b"LANG", b"LANGUAGE"].contains(&name)
}

/// What an interpreter for any call starts with: nothing that one call gave.
fn for_anybody(request: &CodeRequest) -> ExecRequest {
    let name = |entry: &ByteVec| entry.split(|&byte| byte == b'=').next().unwrap_or_default().to_vec();
    let given: Vec<Vec<u8>> = request.given_env.iter().map(name).collect();
    let env = request.exec.env.iter().filter(|entry| !given.contains(&name(entry))).cloned().collect();
    let cwd = b"/".to_vec().into();
    ExecRequest { env, cwd, make_cwd: false, stdin: StdinMode::Null, ..request.exec.clone() }
}

/// The fork server for a call; started when there is none.
async fn server(agent: &Shared, request: &CodeRequest) -> Result<Rc<Server>, Failure> {
    let kind = Kind::of(request);
    let known = agent.code.servers.borrow().get(&kind).cloned().filter(|server| !server.is_gone());
    if let Some(server) = known {
        return Ok(server);
    }
    let started = start(agent, request.language, Mode::Server, &for_anybody(request)).await?;
    let server = Server::new(agent, started.process, started.control, started.output);
    agent.code.servers.borrow_mut().insert(kind.clone(), server.clone());
    let (agent, kept) = (agent.clone(), server.clone());
    tokio::task::spawn_local(async move {
        while !kept.is_gone() {
            let until = kept.used.get() + KEPT_WARM;
            if until <= Instant::now() && kept.is_idle() {
                agent.code.servers.borrow_mut().remove(&kind);
                tree::end(&agent, &kept.process).await;
                return;
            }
            tokio::time::sleep_until(Deadline::from_std(until).max(Deadline::now() + GRACE)).await;
        }
    });
    Ok(server)
}

/// Has an interpreter ready for the next call.
async fn prepare_spare(agent: &Shared, request: &CodeRequest) {
    let kind = Kind::of(request);
    let ready = agent.code.spares.borrow().get(&kind).is_some_and(|spare| !spare.is_gone());
    if ready {
        return;
    }
    // Without it the next call starts its own.
    let Ok(started) = start(agent, request.language, Mode::Once, &for_anybody(request)).await else { return };
    let spare = Interpreter::new(agent, started.process, started.control, started.output);
    agent.code.spares.borrow_mut().insert(kind.clone(), spare.clone());
    let agent = agent.clone();
    tokio::task::spawn_local(async move {
        tokio::time::sleep(KEPT_WARM).await;
        let unused = agent.code.spares.borrow().get(&kind).is_some_and(|other| Rc::ptr_eq(other, &spare));
        if unused {
            agent.code.spares.borrow_mut().remove(&kind);
            tree::end(&agent, &spare.process).await;
        }
    });
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

/// The contexts there are.
pub(crate) fn list(agent: &Shared) -> ContextList {
    let contexts = agent.code.contexts.borrow();
    let entry = |context: &Rc<Context>| {
        let living = context.living();
        ContextEntry {
            name: context.name.clone(),
            language: context.language,
            user: context.user,
            run: living.as_ref().and_then(|interpreter| interpreter.call()).map(|run| run.id.clone()),
            alive: living.is_some(),
            calls: context.calls.get(),
            age_ms: u64::try_from(context.made.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    };
    ContextList { contexts: contexts.values().map(entry).collect() }
}

/// Does something to a context.
pub(crate) async fn act(agent: &Shared, request: &ContextRequest) -> Reply {
    let context = agent.code.contexts.borrow().get(&request.name).cloned();
    let Some(context) = context else {
        let doing = format!("find context {}", request.name);
        return Reply::Failed(Failure { kind: FailureKind::NoSuchRun, errno: libc::ESRCH, doing });
    };
    let living = context.living();
    match request.action {
        ContextAction::Interrupt => {
            if let Some(interpreter) = living.filter(|interpreter| interpreter.call().is_some()) {
                tree::signal_group(&interpreter.process, None, libc::SIGINT);
            }
        }
        ContextAction::Restart | ContextAction::Remove => {
            if request.action == ContextAction::Remove {
                agent.code.contexts.borrow_mut().remove(&request.name);
            }
            context.interpreter.replace(None);
            if let Some(interpreter) = living {
                tree::end(agent, &interpreter.process).await;
            }
        }
    }
    Reply::Done
}
