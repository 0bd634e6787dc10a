//! Contexts: interpreters that keep their state between calls. Finding or starting one for a call, and
//! interrupting, restarting or removing it.

use std::cell::{Cell as Flag, RefCell};
use std::rc::Rc;
use std::time::Instant;

use isle_wire::{
    CodeLanguage, CodeRequest, ContextAction, ContextEntry, ContextFate, ContextList, ContextRequest,
    ExecRequest, Failure, FailureKind, GuestUser, Reply, StdinMode,
};
use tokio::time::Instant as Deadline;

use super::channel::{TakeOver, encode_call};
use super::fork_server::killed;
use super::interpreter::Interpreter;
use super::start::{Mode, start};
use super::{execute, fail, killed_by_request};
use crate::processes::{self, InterpreterSlot};
use crate::run::{KillReason, Run, expired, finish};
use crate::serve::Shared;

/// Maximum number of contexts of a sandbox.
const MAX_CONTEXTS: usize = 32;

/// One context.
pub(super) struct Context {
    name: String,
    language: CodeLanguage,
    user: GuestUser,
    interpreter: RefCell<Option<Rc<Interpreter>>>,
    /// Calls are executed one after another, in the order they arrived.
    turn: tokio::sync::Mutex<()>,
    calls: Flag<u64>,
    made: Instant,
}

impl Context {
    fn running(&self) -> Option<Rc<Interpreter>> {
        self.interpreter.borrow().clone().filter(|interpreter| !interpreter.has_exited())
    }
}

/// The context of a call; created when it does not exist.
fn context_of(agent: &Shared, request: &CodeRequest, name: &str) -> Result<Rc<Context>, Failure> {
    let mut contexts = agent.code.contexts.borrow_mut();
    if let Some(context) = contexts.get(name) {
        if context.language != request.language || context.user != request.exec.user {
            let doing = format!("use context {name} for another language or user");
            return Err(Failure { kind: FailureKind::OtherContext, errno: libc::EINVAL, doing });
        }
        return Ok(context.clone());
    }
    if contexts.len() >= MAX_CONTEXTS {
        let doing = format!("make more than {MAX_CONTEXTS} contexts");
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

pub(super) async fn in_context(
    agent: &Shared,
    run: &Rc<Run>,
    request: &CodeRequest,
    name: &str,
    deadline: Option<Deadline>,
) {
    let context = match context_of(agent, request, name) {
        Ok(context) => context,
        Err(failure) => return fail(agent, run, failure),
    };
    let turn = tokio::select! {
        biased;
        () = killed_by_request(run) => None,
        turn = context.turn.lock() => Some(turn),
        () = expired(deadline) => {
            run.state.borrow_mut().killed = Some(KillReason::TimedOut);
            None
        }
    };
    let Some(_turn) = turn else {
        run.state.borrow_mut().exit = Some(killed());
        return finish(agent, run, 0);
    };
    let (interpreter, fate) = match context.running() {
        Some(interpreter) => (interpreter, ContextFate::Kept),
        None => {
            let exec = ExecRequest { stdin: StdinMode::Null, ..request.exec.clone() };
            match start(agent, request.language, Mode::Context, &exec).await {
                Ok(started) => {
                    let interpreter = Interpreter::new(agent, Mode::Context, started);
                    context.interpreter.replace(Some(interpreter.clone()));
                    (interpreter, ContextFate::New)
                }
                Err(failure) => {
                    if context.calls.get() == 0 {
                        agent.code.contexts.borrow_mut().remove(name);
                    }
                    return fail(agent, run, failure);
                }
            }
        }
    };
    context.calls.set(context.calls.get() + 1);
    run.state.borrow_mut().context = Some(fate);
    run.processes.set_interpreter_slot(InterpreterSlot::Context(interpreter.process.clone()));
    interpreter.begin(run);
    let take_over = if fate == ContextFate::New { TakeOver::Nothing } else { TakeOver::Given };
    execute(agent, run, &interpreter, &encode_call(&agent.mode.paths, request, take_over), deadline).await;
}

/// All contexts.
pub(crate) fn list(agent: &Shared) -> ContextList {
    let contexts = agent.code.contexts.borrow();
    let entry = |context: &Rc<Context>| {
        let running = context.running();
        ContextEntry {
            name: context.name.clone(),
            language: context.language,
            user: context.user,
            run: running.as_ref().and_then(|interpreter| interpreter.call()).map(|run| run.id.clone()),
            alive: running.is_some(),
            calls: context.calls.get(),
            age_ms: u64::try_from(context.made.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    };
    ContextList { contexts: contexts.values().map(entry).collect() }
}

/// Interrupts, restarts or removes a context.
pub(crate) async fn act(agent: &Shared, request: &ContextRequest) -> Reply {
    let context = agent.code.contexts.borrow().get(&request.name).cloned();
    let Some(context) = context else {
        let doing = format!("find context {}", request.name);
        return Reply::Failed(Failure { kind: FailureKind::NoSuchRun, errno: libc::ESRCH, doing });
    };
    let running = context.running();
    match request.action {
        ContextAction::Interrupt => {
            if let Some(interpreter) = running.filter(|interpreter| interpreter.call().is_some()) {
                processes::signal_group(&interpreter.process, None, libc::SIGINT);
            }
        }
        ContextAction::Restart | ContextAction::Remove => {
            if request.action == ContextAction::Remove {
                agent.code.contexts.borrow_mut().remove(&request.name);
            }
            context.interpreter.replace(None);
            if let Some(interpreter) = running {
                processes::kill_all(agent, &interpreter.process).await;
            }
        }
    }
    Reply::Done
}
