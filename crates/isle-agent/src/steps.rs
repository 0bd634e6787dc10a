//! Several commands in one run, one after the other. The agent goes through them by itself, so that
//! they go on while no daemon is alive and none is ever run twice. The run has no process of its own:
//! each command is a hidden run, tagged, supervised, reaped and ended as every run is, and whose
//! output is the run's.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use isle_wire::{
    ExecRequest, Exit, Failure, FailureKind, FrameError, StdinMode, Step, StepEnd, StepsRequest, Stream,
};
use tokio::time::Instant as Deadline;

use crate::entrance::Entrance;
use crate::run::{Output, Whose, drain, expired, finish, follow, keep, register};
use crate::runs::{Reaped, Run, RunKind, RunState};
use crate::serve::{Cell, Shared};
use crate::spawn;
use crate::spent::Spent;
use crate::tree::{self, Lodging, Tree};

/// What a shell answers for a program it cannot find, or cannot execute.
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
        tree: Tree::Lodged(RefCell::new(Lodging::Waiting)),
        started: Instant::now(),
        on_hangup: request.exec.on_hangup,
        limits: spawn::limits(request.exec.limits),
        kind: RunKind::Asked,
        entrance: Entrance::default(),
        keep_input: false,
        state: Cell::new(RunState::new(request.exec.retain)),
        changed: tokio::sync::Notify::new(),
    });
    agent.runs.insert(run.clone());
    if agent.runs.is_condemned(&run.id) {
        run.state.borrow_mut().killed.get_or_insert(false);
    }
    tokio::task::spawn_local(perform(agent.clone(), run.clone(), request));
    let position = run.state.borrow().fresh.end();
    follow(stream, agent, run, Whose::Follower, position).await
}

/// Goes through the commands.
async fn perform(agent: Shared, run: Rc<Run>, request: StepsRequest) {
    let limit = request.exec.timeout_ms.map(Duration::from_millis);
    let deadline = limit.map(|limit| Deadline::now() + limit);
    let mut whole = Reaped { exit: Exit::Code(0), spent: Spent::NOTHING };
    let mut leftovers = 0;
    for (number, step) in request.steps.iter().enumerate() {
        if run.state.borrow().killed.is_some() {
            break;
        }
        agent.pause.off().await;
        let (stdout, stderr) = totals(&run);
        let began = Instant::now();
        let outcome = one(&agent, &run, &request.exec, number, step, deadline).await;
        let (exit, failure) = match outcome {
            Ok((reaped, left)) => {
                whole.spent = whole.spent.and(reaped.spent);
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
        // The first failure is the run's.
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
    finish(&run, leftovers);
}

fn totals(run: &Run) -> (u64, u64) {
    let state = run.state.borrow();
    (state.stdout.total(), state.stderr.total())
}

fn not_started(failure: &Failure) -> Exit {
    Exit::Code(if failure.kind == FailureKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// Runs one command to its end.
async fn one(
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
    let spawned = spawn::spawn(&request)?;
    let Ok((process, output)) = register(agent, &request, spawned, RunKind::Step) else {
        let doing = "watch the program's pipes".into();
        return Err(Failure { kind: FailureKind::Other, errno: 0, doing });
    };
    process.state.borrow_mut().on_behalf = Rc::downgrade(run);
    run.tree.lodge(Lodging::Own(process.clone()));
    // Whoever wanted an end while there was no process was not heard by one.
    if run.state.borrow().killed.is_some() {
        tree::end(agent, &process).await;
    }
    let ended = see_out(agent, run, &process, output, deadline).await;
    run.tree.lodge(Lodging::Waiting);
    agent.runs.remove(&process.id);
    Ok(ended)
}

/// Reads what a command says into its run, keeps the deadline, winds the command up.
async fn see_out(
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
                run.state.borrow_mut().killed = Some(true);
                tree::end(agent, process).await;
            }
        }
    };
    let leftovers = tree::end_leftovers(agent, process).await;
    drain(run, &mut output).await;
    finish(process, leftovers);
    let spent = reaped.spent.and(process.state.borrow().others);
    (Reaped { spent, ..reaped }, leftovers)
}
