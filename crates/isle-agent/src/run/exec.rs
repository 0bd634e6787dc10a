//! Starting a command as a run.

use std::rc::Rc;
use std::time::{Duration, Instant};

use isle_wire::{ExecEvent, ExecRequest, Failure, FailureKind, FrameError, Stream, write_message};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant as Deadline;

use super::pump::pump;
use super::{KillReason, Output, Run, RunKind, RunState, StreamRole, follow};
use crate::async_fd::register as register_fd;
use crate::processes;
use crate::serve::{Cell, Shared};
use crate::spawn::starting::Starting;
use crate::spawn::{self, ProgramIo, Spawned};
use crate::stdin::Stdin;

/// Starts a run and serves its stream.
pub(crate) async fn exec(mut stream: Stream, agent: Shared, request: ExecRequest) -> Result<(), FrameError> {
    for run in &request.forget {
        agent.runs.forget(run);
    }
    let spawned = match agent.pause.check_not_paused() {
        Ok(()) => spawn::spawn(&agent.mode, &request).await,
        Err(failure) => Err(failure),
    };
    let spawned = match spawned {
        Ok(spawned) => spawned,
        Err(failure) => {
            write_message(&mut stream, &ExecEvent::Failed(failure)).await?;
            stream.shutdown().await.ok();
            return Ok(());
        }
    };
    let Ok((run, output)) = register(&agent, &request, spawned, RunKind::Requested) else {
        let failure =
            Failure { kind: FailureKind::Other, errno: 0, doing: "watch the program's pipes".into() };
        return write_message(&mut stream, &ExecEvent::Failed(failure)).await;
    };
    let deadline = request.timeout_ms.map(|limit| Deadline::now() + Duration::from_millis(limit));
    tokio::task::spawn_local(pump(agent.clone(), run.clone(), output, deadline));
    if agent.runs.is_killed_before_start(&run.id) {
        run.state.borrow_mut().killed.get_or_insert(KillReason::Requested);
        processes::kill_all(&agent, &run).await;
    }
    let position = run.state.borrow().fresh.end();
    follow(stream, agent, run, StreamRole::Starter, position).await
}

/// The run of a child was registered; the child may have been reaped before.
pub(crate) fn registered(agent: &Shared, run: &Rc<Run>, starting: Option<Starting>) {
    if let Some(reaped) = starting.and_then(Starting::registered) {
        processes::first_process_exited(agent, run, reaped);
    }
}

/// Makes a run of a started program.
pub(crate) fn register(
    agent: &Shared,
    request: &ExecRequest,
    spawned: Spawned,
    kind: RunKind,
) -> std::io::Result<(Rc<Run>, Output)> {
    let (stdin, output) = match spawned.io {
        ProgramIo::Pipes { stdin, stdout, stderr } => (
            Stdin::pipe(stdin.map(register_fd).transpose()?),
            Output::Pipes { stdout: Some(register_fd(stdout)?), stderr: Some(register_fd(stderr)?) },
        ),
        ProgramIo::Terminal { master } => {
            let master = Rc::new(register_fd(master)?);
            (Stdin::terminal(master.clone()), Output::Terminal(Some(master)))
        }
    };
    let run = Rc::new(Run {
        id: request.run.clone(),
        pid: spawned.pid,
        processes: spawned.processes,
        started: Instant::now(),
        on_hangup: request.on_hangup,
        limits: agent.mode.run_limits(request.limits),
        kind,
        stdin,
        keep_input: request.keep_input,
        state: Cell::new(RunState::new(request.retain)),
        changed: tokio::sync::Notify::new(),
    });
    agent.runs.insert(run.clone());
    registered(agent, &run, spawned.starting);
    Ok((run, output))
}
