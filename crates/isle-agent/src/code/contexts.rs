//! Interpreters that stay: finding or making one for a call, and what can be done to it between calls.

use std::cell::{Cell as Flag, RefCell};
use std::rc::Rc;
use std::time::Instant;

use isle_wire::{
    CodeLanguage, CodeRequest, ContextAction, ContextEntry, ContextFate, ContextList, ContextRequest,
    ExecRequest, Failure, FailureKind, GuestUser, Reply, StdinMode,
};
use tokio::time::Instant as Deadline;

use super::control::{Taken, call};
use super::fork::killed;
use super::process::{Mode, start};
use super::whole::Interpreter;
use super::{carry, fail, unwanted};
use crate::run::{expired, finish};
use crate::runs::Run;
use crate::serve::Shared;
use crate::tree::{self, Lodging};

/// Contexts a sandbox may have.
const MOST_CONTEXTS: usize = 32;

/// One context.
pub(super) struct Context {
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

pub(super) async fn in_context(
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
                    let interpreter = Interpreter::new(agent, Mode::Context, started);
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
