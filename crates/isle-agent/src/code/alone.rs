//! Calls that leave nothing behind. They are quick because the process they run in, or the one it is forked
//! from, was started before.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use isle_wire::{CodeLanguage, CodeRequest, ExecRequest, Failure, RunLimits, StdinMode};
use minicbor::bytes::ByteVec;
use tokio::time::Instant as Deadline;

use super::control::{Taken, call};
use super::fork::{Handed, Server};
use super::process::{Mode, start};
use super::whole::Interpreter;
use super::{GRACE, Kind, carry, fail};
use crate::entrance::write_all;
use crate::runs::Run;
use crate::serve::Shared;
use crate::tree::{self, Lodging};
use crate::watched::watch;

/// How long an interpreter is kept ready after the last call.
const KEPT_WARM: Duration = Duration::from_secs(600);

/// How long an answer takes to be out of the house.
const ANSWERED: Duration = Duration::from_millis(5);

/// A call that leaves nothing behind.
pub(super) async fn alone(
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
        // The answer first: starting an interpreter beside it would hold it up.
        tokio::time::sleep(ANSWERED).await;
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
        tokio::task::spawn_local(pour(from, to));
    }
    Ok(Interpreter::new(agent, Mode::Once, started))
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
    let spare = Interpreter::new(agent, Mode::Once, started);
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
