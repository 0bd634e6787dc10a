//! Calls without a context. They are quick because their process, or the one it is forked from, was
//! prestarted.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use isle_wire::{CodeLanguage, CodeRequest, ExecRequest, Failure, RunLimits, StdinMode};
use minicbor::bytes::ByteVec;
use tokio::time::Instant as Deadline;

use super::channel::{TakeOver, encode_call};
use super::fork_server::{ForkServer, HandOver};
use super::interpreter::Interpreter;
use super::start::{Mode, start};
use super::{INTERRUPT_TIMEOUT, InterpreterKind, execute, fail};
use crate::async_fd::register;
use crate::processes::{self, InterpreterSlot};
use crate::run::Run;
use crate::serve::Shared;
use crate::stdin::write_all;

/// How long a prestarted interpreter is kept after the last call.
const KEEP_WARM: Duration = Duration::from_secs(600);

/// Delay before the next interpreter is started, so that the answer is sent first.
const AFTER_ANSWER: Duration = Duration::from_millis(5);

/// Executes a call without a context.
pub(super) async fn stateless(
    agent: &Shared,
    run: &Rc<Run>,
    request: &CodeRequest,
    stdin: Option<OwnedFd>,
    deadline: Option<Deadline>,
) {
    // Limits are set before a program is executed, so a call with limits needs a process of its own.
    let plain = request.exec.limits == RunLimits::default();
    let warm = plain && request.keep_warm && !request.given_env.iter().any(|entry| is_read_at_start(entry));
    let stdin = if warm && request.language == CodeLanguage::Python && !agent.code.unforkable.get() {
        let copy = stdin.as_ref().and_then(|stdin| stdin.try_clone().ok());
        match server(agent, request).await {
            Err(failure) => return fail(agent, run, failure),
            Ok(server) => match server.run(agent, run, request, copy, deadline).await {
                HandOver::Rejected => agent.code.unforkable.set(true),
                HandOver::Taken | HandOver::Lost => return,
            },
        }
        stdin
    } else {
        stdin
    };
    let spare = if warm && stdin.is_none() {
        agent
            .code
            .spares
            .borrow_mut()
            .remove(&InterpreterKind::of(request))
            .filter(|spare| !spare.has_exited())
    } else {
        None
    };
    let (interpreter, take_over) = match spare {
        Some(spare) => (spare, TakeOver::Everything),
        None => match start_with_input(agent, request, stdin).await {
            Ok(interpreter) => (interpreter, TakeOver::Nothing),
            Err(failure) => return fail(agent, run, failure),
        },
    };
    run.processes.set_interpreter_slot(InterpreterSlot::Own(interpreter.process.clone()));
    interpreter.begin(run);
    execute(agent, run, &interpreter, &encode_call(&agent.mode.paths, request, take_over), deadline).await;
    if warm && request.language == CodeLanguage::Node {
        // After the answer, which starting an interpreter would delay.
        tokio::time::sleep(AFTER_ANSWER).await;
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
    let mut started = start(agent, request.language, Mode::Once, &exec).await?;
    if let (Some(from), Some(to)) = (stdin, started.stdin.take()) {
        tokio::task::spawn_local(copy_input(from, to));
    }
    Ok(Interpreter::new(agent, Mode::Once, started))
}

/// Copies the input of a call to the interpreter that was started for it.
async fn copy_input(from: OwnedFd, to: tokio::io::unix::AsyncFd<OwnedFd>) {
    if rustix::io::ioctl_fionbio(&from, true).is_err() {
        return;
    }
    let Ok(from) = register(from) else { return };
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

/// Whether an interpreter reads this variable only when it starts.
fn is_read_at_start(entry: &[u8]) -> bool {
    let name = entry.split(|&byte| byte == b'=').next().unwrap_or_default();
    name.starts_with(b"PYTHON")
        || name.starts_with(b"NODE")
        || name.starts_with(b"LC_")
        || [&b"HOME"[..], b"LANG", b"LANGUAGE"].contains(&name)
}

/// The request to start an interpreter for any call: without what one call gave.
fn for_any_call(request: &CodeRequest) -> ExecRequest {
    let name = |entry: &ByteVec| entry.split(|&byte| byte == b'=').next().unwrap_or_default().to_vec();
    let given: Vec<Vec<u8>> = request.given_env.iter().map(name).collect();
    let env = request.exec.env.iter().filter(|entry| !given.contains(&name(entry))).cloned().collect();
    let cwd = b"/".to_vec().into();
    ExecRequest { env, cwd, make_cwd: false, stdin: StdinMode::Null, ..request.exec.clone() }
}

/// The fork server for a call; started when there is none.
async fn server(agent: &Shared, request: &CodeRequest) -> Result<Rc<ForkServer>, Failure> {
    let kind = InterpreterKind::of(request);
    let known = agent.code.servers.borrow().get(&kind).cloned().filter(|server| !server.has_exited());
    if let Some(server) = known {
        if server.responds().await {
            return Ok(server);
        }
        // It does not respond: it is killed with the calls in it, and the next calls use another.
        processes::kill_all(agent, &server.process).await;
        let other = agent.code.servers.borrow().get(&kind).cloned();
        if let Some(other) = other.filter(|other| !Rc::ptr_eq(other, &server) && !other.has_exited()) {
            return Ok(other);
        }
    }
    let started = start(agent, request.language, Mode::Server, &for_any_call(request)).await?;
    let server = ForkServer::new(agent, started.process, started.control, started.output);
    agent.code.servers.borrow_mut().insert(kind.clone(), server.clone());
    let (agent, kept) = (agent.clone(), server.clone());
    tokio::task::spawn_local(async move {
        while !kept.has_exited() {
            let until = kept.used.get() + KEEP_WARM;
            if until <= Instant::now() && kept.is_idle() {
                agent.code.servers.borrow_mut().remove(&kind);
                processes::kill_all(&agent, &kept.process).await;
                return;
            }
            tokio::time::sleep_until(Deadline::from_std(until).max(Deadline::now() + INTERRUPT_TIMEOUT))
                .await;
        }
    });
    Ok(server)
}

/// Prestarts an interpreter for the next call.
async fn prepare_spare(agent: &Shared, request: &CodeRequest) {
    let kind = InterpreterKind::of(request);
    let ready = agent.code.spares.borrow().get(&kind).is_some_and(|spare| !spare.has_exited());
    if ready {
        return;
    }
    // On failure the next call starts its own.
    let Ok(started) = start(agent, request.language, Mode::Once, &for_any_call(request)).await else {
        return;
    };
    let spare = Interpreter::new(agent, Mode::Once, started);
    agent.code.spares.borrow_mut().insert(kind.clone(), spare.clone());
    let agent = agent.clone();
    tokio::task::spawn_local(async move {
        tokio::time::sleep(KEEP_WARM).await;
        let unused = agent.code.spares.borrow().get(&kind).is_some_and(|other| Rc::ptr_eq(other, &spare));
        if unused {
            agent.code.spares.borrow_mut().remove(&kind);
            processes::kill_all(&agent, &spare.process).await;
        }
    });
}
