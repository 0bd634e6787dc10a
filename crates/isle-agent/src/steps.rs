//! Several commands in one run, one after the other. The agent goes through them by itself, so that they
//! continue while no daemon is running and none is ever run twice. The run has no process of its own: each
//! command is a hidden run, found, reaped and killed as every run is, and its output is that of the run.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use isle_wire::{
    ExecRequest, Exit, Failure, FailureKind, FrameError, StdinMode, Step, StepEnd, StepsRequest, Stream,
};
use tokio::time::Instant as Deadline;

use crate::processes::{self, InterpreterSlot, RunProcesses};
use crate::resource_usage::ResourceUsage;
use crate::run::{
    KillReason, Output, Reaped, Run, RunKind, RunState, StreamRole, drain, expired, finish, follow, keep,
    register,
};
use crate::serve::{Cell, Shared};
use crate::spawn;
use crate::stdin::Stdin;

/// The exit status of a shell for a program it cannot find, or cannot execute.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// Starts the commands and serves the stream of their run.
pub(crate) async fn run(stream: Stream, agent: Shared, request: StepsRequest) -> Result<(), FrameError> {
    for run in &request.exec.forget {
        agent.runs.forget(run);
    }
    let run = Rc::new(Run {
        id: request.exec.run.clone(),
        pid: 0,
        processes: RunProcesses::InInterpreter(RefCell::new(InterpreterSlot::Waiting)),
        started: Instant::now(),
        on_hangup: request.exec.on_hangup,
        limits: agent.mode.run_limits(request.exec.limits),
        kind: RunKind::Requested,
        stdin: Stdin::default(),
        keep_input: false,
        state: Cell::new(RunState::new(request.exec.retain)),
        changed: tokio::sync::Notify::new(),
    });
    agent.runs.insert(run.clone());
    if agent.runs.is_killed_before_start(&run.id) {
        run.state.borrow_mut().killed.get_or_insert(KillReason::Requested);
    }
    tokio::task::spawn_local(perform(agent.clone(), run.clone(), request));
    let position = run.state.borrow().fresh.end();
    follow(stream, agent, run, StreamRole::Follower, position).await
}

/// Runs the commands.
async fn perform(agent: Shared, run: Rc<Run>, request: StepsRequest) {
    let limit = request.exec.timeout_ms.map(Duration::from_millis);
    let deadline = limit.map(|limit| Deadline::now() + limit);
    let mut whole = Reaped { exit: Exit::Code(0), usage: ResourceUsage::ZERO };
    let mut leftovers = 0;
    for (number, step) in request.steps.iter().enumerate() {
        if run.state.borrow().killed.is_some() {
            break;
        }
        agent.pause.resumed().await;
        let (stdout, stderr) = totals(&run);
        let began = Instant::now();
        let outcome = run_step(&agent, &run, &request.exec, number, step, deadline).await;
        let (exit, failure) = match outcome {
            Ok((reaped, left)) => {
                whole.usage = whole.usage.and(reaped.usage);
                leftovers += left;
                (reaped.exit, None)
            }
            Err(failure) => (not_started(&failure), Some(failure)),
        };
        let (stdout_end, stderr_end) = totals(&run);
        let killed = {
            let mut state = run.state.borrow_mut();
            state.steps.push(StepEnd {
                exit: failure.is_none().then_some(exit),
                failure,
                wall_us: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
                stdout_offset: stdout,
                stdout_bytes: stdout_end - stdout,
                stderr_offset: stderr,
                stderr_bytes: stderr_end - stderr,
            });
            state.killed.is_some()
        };
        run.changed.notify_waiters();
        let failed = exit != Exit::Code(0) && (killed || !step.may_fail);
        // The first failure is that of the run.
        if failed && whole.exit == Exit::Code(0) {
            whole.exit = exit;
        }
        if failed && !request.continue_on_error {
            break;
        }
    }
    if run.state.borrow().killed.is_some() && whole.exit == Exit::Code(0) {
        whole.exit = Exit::Signal(libc::SIGKILL);
    }
    run.state.borrow_mut().exit = Some(whole);
    finish(&agent, &run, leftovers);
}

fn totals(run: &Run) -> (u64, u64) {
    let state = run.state.borrow();
    (state.stdout.total(), state.stderr.total())
}

fn not_started(failure: &Failure) -> Exit {
    Exit::Code(if failure.kind == FailureKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// Runs one command until it exits.
async fn run_step(
    agent: &Shared,
    run: &Rc<Run>,
    common: &ExecRequest,
    number: usize,
    step: &Step,
    deadline: Option<Deadline>,
) -> Result<(Reaped, u32), Failure> {
    let request = ExecRequest {
        run: format!("{}.{number}", run.id),
        argv: step.argv.clone(),
        env: step.env.clone(),
        cwd: step.cwd.clone(),
        make_cwd: step.make_cwd,
        stdin: StdinMode::Null,
        terminal: None,
        retain: 0,
        forget: Vec::new(),
        ..common.clone()
    };
    let spawned = spawn::spawn(&agent.mode, &request).await?;
    let Ok((process, output)) = register(agent, &request, spawned, RunKind::Step) else {
        let doing = "watch the program's pipes".into();
        return Err(Failure { kind: FailureKind::Other, errno: 0, doing });
    };
    process.state.borrow_mut().on_behalf_of = Rc::downgrade(run);
    run.processes.set_interpreter_slot(InterpreterSlot::Own(process.clone()));
    // The run may have been killed while there was no process.
    if run.state.borrow().killed.is_some() {
        processes::kill_all(agent, &process).await;
    }
    let result = finish_step(agent, run, &process, output, deadline).await;
    run.processes.set_interpreter_slot(InterpreterSlot::Waiting);
    agent.runs.remove(&process.id);
    Ok(result)
}

/// Reads the output of a command into its run, enforces the deadline, and finishes the command.
async fn finish_step(
    agent: &Shared,
    run: &Rc<Run>,
    process: &Rc<Run>,
    mut output: Output,
    deadline: Option<Deadline>,
) -> (Reaped, u32) {
    let mut deadline = deadline;
    let reaped = loop {
        let mut ended = pin!(process.changed.notified());
        ended.as_mut().enable();
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if let Some(reaped) = process.state.borrow().exit {
            break reaped;
        }
        let full = run.state.borrow().fresh.is_full();
        tokio::select! {
            () = ended => {}
            () = changed, if full => {}
            chunk = output.read(), if output.is_open() && !full => keep(run, chunk),
            () = expired(deadline) => {
                deadline = None;
                run.state.borrow_mut().killed = Some(KillReason::TimedOut);
                processes::kill_all(agent, process).await;
            }
        }
    };
    let leftovers = processes::kill_leftovers(agent, process).await;
    drain(run, &mut output).await;
    finish(agent, process, leftovers);
    let usage = reaped.usage.and(process.state.borrow().others);
    (Reaped { usage, ..reaped }, leftovers)
}
