//! One run from start to end: a pump that reads its outputs and winds it up, and followers that
//! send what the pump read. A follower that lags holds the pump back, and the pump the program.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use isle_linux::setup::seccomp::call_name;
use isle_wire::{
    Ended, ExecControl, ExecEvent, ExecRequest, Failure, FailureKind, Frame, FrameError, OnHangup, Reply,
    SignalRequest, Skipped, StepEnd, Stream, Violation, read_frame, write_frame, write_message,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::Instant as Deadline;

use crate::entrance::Entrance;
use crate::exceeded::exceeded;
use crate::output::Channel;
use crate::room;
use crate::routes;
use crate::runs::{Run, RunKind, RunState};
use crate::serve::{Cell, Shared, output_frame};
use crate::spawn::{self, ProgramIo, Spawned};
use crate::tree;
use crate::watched::watch;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// How long outputs may stay open after every process of the run is gone.
const LINGER: Duration = Duration::from_millis(500);

/// From the program.
pub(crate) enum Output {
    Pipes { stdout: Option<AsyncFd<OwnedFd>>, stderr: Option<AsyncFd<OwnedFd>> },
    Terminal(Option<Rc<AsyncFd<OwnedFd>>>),
}

/// Starts a run and serves its stream.
pub(crate) async fn exec(mut stream: Stream, agent: Shared, request: ExecRequest) -> Result<(), FrameError> {
    for run in &request.forget {
        agent.runs.forget(run);
    }
    let spawned = match agent.pause.refuse().and_then(|()| spawn::spawn(&request)) {
        Ok(spawned) => spawned,
        Err(failure) => {
            write_message(&mut stream, &ExecEvent::Failed(failure)).await?;
            stream.shutdown().await.ok();
            return Ok(());
        }
    };
    let Ok((run, output)) = register(&agent, &request, spawned, RunKind::Asked) else {
        let failure =
            Failure { kind: FailureKind::Other, errno: 0, doing: "watch the program's pipes".into() };
        return write_message(&mut stream, &ExecEvent::Failed(failure)).await;
    };
    let deadline = request.timeout_ms.map(|limit| Deadline::now() + Duration::from_millis(limit));
    tokio::task::spawn_local(pump(agent.clone(), run.clone(), output, deadline));
    if agent.runs.is_condemned(&run.id) {
        run.state.borrow_mut().killed.get_or_insert(false);
        tree::end(&agent, &run).await;
    }
    let position = run.state.borrow().fresh.end();
    follow(stream, agent, run, Whose::Starter, position).await
}

/// Follows a run that is known.
pub(crate) async fn attach(mut stream: Stream, agent: Shared, id: &str) -> Result<(), FrameError> {
    let Some(run) = agent.runs.get(id) else {
        let failure = Failure { kind: FailureKind::NoSuchRun, errno: 0, doing: format!("attach to {id}") };
        write_message(&mut stream, &ExecEvent::Failed(failure)).await?;
        stream.shutdown().await.ok();
        return Ok(());
    };
    let (stdout, stderr, position) = {
        let state = run.state.borrow();
        (state.stdout.snapshot(), state.stderr.snapshot(), state.fresh.end())
    };
    for (channel, (head, skipped, tail)) in [(Channel::Stdout, stdout), (Channel::Stderr, stderr)] {
        send_retained(&mut stream, channel, &head).await?;
        if skipped > 0 {
            let skipped = match channel {
                Channel::Stdout => Skipped { stdout: skipped, stderr: 0 },
                Channel::Stderr => Skipped { stdout: 0, stderr: skipped },
            };
            write_message(&mut stream, &ExecEvent::Skipped(skipped)).await?;
        }
        send_retained(&mut stream, channel, &tail).await?;
    }
    follow(stream, agent, run, Whose::Follower, position).await
}

async fn send_retained(stream: &mut Stream, channel: Channel, bytes: &Bytes) -> Result<(), FrameError> {
    for start in (0..bytes.len()).step_by(CHUNK) {
        let chunk = bytes.slice(start..bytes.len().min(start + CHUNK));
        write_frame(stream, &output_frame(channel, chunk)).await?;
    }
    Ok(())
}

pub(crate) fn register(
    agent: &Shared,
    request: &ExecRequest,
    spawned: Spawned,
    kind: RunKind,
) -> std::io::Result<(Rc<Run>, Output)> {
    let (entrance, output) = match spawned.io {
        ProgramIo::Pipes { stdin, stdout, stderr } => (
            Entrance::pipe(stdin.map(watch).transpose()?),
            Output::Pipes { stdout: Some(watch(stdout)?), stderr: Some(watch(stderr)?) },
        ),
        ProgramIo::Terminal { master } => {
            let master = Rc::new(watch(master)?);
            (Entrance::terminal(master.clone()), Output::Terminal(Some(master)))
        }
    };
    let run = Rc::new(Run {
        id: request.run.clone(),
        pid: spawned.pid,
        tree: spawned.tree,
        started: Instant::now(),
        on_hangup: request.on_hangup,
        limits: spawn::limits(request.limits),
        kind,
        entrance,
        keep_input: request.keep_input,
        state: Cell::new(RunState::new(request.retain)),
        changed: tokio::sync::Notify::new(),
    });
    agent.runs.insert(run.clone());
    Ok((run, output))
}

/// Whose stream it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Of who started the run: input comes on it, and ends with it unless the run keeps it.
    Starter,
    /// Of somebody who came later.
    Follower,
}

/// Serves one stream of a run: output and the end towards the host, input and control from it.
pub(crate) async fn follow(
    stream: Stream,
    agent: Shared,
    run: Rc<Run>,
    whose: Whose,
    position: u64,
) -> Result<(), FrameError> {
    let (reader, writer) = tokio::io::split(stream);
    let leave = || {
        if whose == Whose::Starter && !run.keep_input {
            run.entrance.close();
        }
    };
    let outcome = {
        let follower = Follower::new(run.clone(), position);
        let mut sending = pin!(send_output(writer, &follower));
        tokio::select! {
            sent = &mut sending => sent,
            heard = hear(reader, &run, whose) => {
                leave();
                match heard {
                    // The host has nothing more to say but goes on listening.
                    Ok(()) => sending.await,
                    Err(error) => Err(error),
                }
            }
        }
    };
    leave();
    if outcome.is_err() && run.on_hangup == OnHangup::Kill && run.state.borrow().ended.is_none() {
        run.state.borrow_mut().killed.get_or_insert(false);
        tree::end(&agent, &run).await;
    }
    outcome
}

/// A place in a run's fresh output; the pump waits for it.
struct Follower {
    run: Rc<Run>,
    id: u64,
    /// Ends of commands that were told.
    steps: std::cell::Cell<usize>,
    /// How often it was told that a program asks for a name.
    asked: std::cell::Cell<u64>,
}

/// What a follower tells next.
enum News {
    Asked,
    Chunk(Channel, Bytes),
    Step(StepEnd),
    Ended(Ended),
}

impl Follower {
    fn new(run: Rc<Run>, position: u64) -> Self {
        let id = {
            let mut state = run.state.borrow_mut();
            let id = state.next_follower;
            state.next_follower += 1;
            state.followers.insert(id, position);
            id
        };
        Self { run, id, steps: std::cell::Cell::new(0), asked: std::cell::Cell::new(0) }
    }

    /// The next chunk, the end of a command, or the end.
    async fn next(&self) -> News {
        loop {
            let mut changed = pin!(self.run.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.run.state.borrow_mut();
                if state.asked != self.asked.get() {
                    self.asked.set(state.asked);
                    return News::Asked;
                }
                let position = state.followers.get(&self.id).copied().unwrap_or(u64::MAX);
                if let Some((channel, bytes)) = state.fresh.get(position) {
                    let was_full = state.fresh.is_full();
                    state.followers.insert(self.id, position + 1);
                    state.trim();
                    if was_full && !state.fresh.is_full() {
                        self.run.changed.notify_waiters();
                    }
                    return News::Chunk(channel, bytes);
                }
                if let Some(step) = state.steps.get(self.steps.get()) {
                    self.steps.set(self.steps.get() + 1);
                    return News::Step(step.clone());
                }
                if let Some(ended) = &state.ended {
                    return News::Ended(ended.clone());
                }
            }
            changed.await;
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut state = self.run.state.borrow_mut();
        state.followers.remove(&self.id);
        state.trim();
        self.run.changed.notify_waiters();
    }
}

async fn send_output(mut writer: WriteHalf<Stream>, follower: &Follower) -> Result<(), FrameError> {
    loop {
        match follower.next().await {
            News::Chunk(channel, bytes) => write_frame(&mut writer, &output_frame(channel, bytes)).await?,
            News::Asked => write_message(&mut writer, &ExecEvent::NameAsked).await?,
            News::Step(step) => write_message(&mut writer, &ExecEvent::Step(step)).await?,
            News::Ended(ended) => {
                let (failed, report) = {
                    let state = follower.run.state.borrow();
                    (state.failed.clone(), state.report.clone().unwrap_or_default())
                };
                for start in (0..report.len()).step_by(CHUNK) {
                    let chunk = report.slice(start..report.len().min(start + CHUNK));
                    write_frame(&mut writer, &Frame::Data(chunk)).await?;
                }
                let last = failed.map_or_else(|| ExecEvent::Ended(Box::new(ended)), ExecEvent::Failed);
                write_message(&mut writer, &last).await?;
                writer.shutdown().await.ok();
                return Ok(());
            }
        }
    }
}

/// Takes input and control until the host closes its side (`Ok`) or the stream breaks.
async fn hear(mut reader: ReadHalf<Stream>, run: &Rc<Run>, whose: Whose) -> Result<(), FrameError> {
    let may_write = whose == Whose::Starter;
    loop {
        match read_frame(&mut reader).await? {
            None => {
                // A reset and a clean close look alike from here; only the host's own promise tells: it
                // keeps its side open while it wants the run, so an end means it is gone.
                return match run.on_hangup {
                    OnHangup::Kill => Err(FrameError::Ended),
                    OnHangup::Continue => Ok(()),
                };
            }
            Some(Frame::Stdin(bytes)) => {
                if may_write {
                    run.entrance.write(&bytes).await;
                }
            }
            Some(Frame::End) => {
                if may_write {
                    run.entrance.end().await;
                }
            }
            Some(message @ Frame::Message(_)) => match message.decode::<ExecControl>()? {
                ExecControl::Resize(size) => {
                    if may_write {
                        run.entrance.resize(size);
                    }
                }
                ExecControl::Signal(signal) => tree::signal_group(run, run.entrance.foreground(), signal),
            },
            Some(_) => return Err(FrameError::Unexpected("stdin or control")),
        }
    }
}

/// Reads what there is; empty at the end (a terminal whose last program has gone says so by an error).
async fn read_some(source: &AsyncFd<OwnedFd>) -> Bytes {
    loop {
        let Ok(mut ready) = source.readable().await else { return Bytes::new() };
        let mut buffer = BytesMut::zeroed(CHUNK);
        match ready.try_io(|inner| rustix::io::read(inner.get_ref(), &mut buffer[..]).map_err(Into::into)) {
            Ok(Ok(count)) => {
                // Copied to its size: a chunk may be kept for long and is usually small.
                return Bytes::copy_from_slice(&buffer[..count]);
            }
            Ok(Err(_)) => return Bytes::new(),
            Err(_would_block) => {}
        }
    }
}

impl Output {
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Pipes { stdout, stderr } => stdout.is_some() || stderr.is_some(),
            Self::Terminal(master) => master.is_some(),
        }
    }

    /// The next bytes of either output; closes the one that ended.
    pub(crate) async fn read(&mut self) -> Option<(Channel, Bytes)> {
        match self {
            Self::Pipes { stdout, stderr } => {
                let (channel, bytes) = tokio::select! {
                    bytes = read_open(stdout.as_ref()), if stdout.is_some() => (Channel::Stdout, bytes),
                    bytes = read_open(stderr.as_ref()), if stderr.is_some() => (Channel::Stderr, bytes),
                };
                if !bytes.is_empty() {
                    return Some((channel, bytes));
                }
                match channel {
                    Channel::Stdout => *stdout = None,
                    Channel::Stderr => *stderr = None,
                }
                None
            }
            Self::Terminal(master) => {
                let bytes = read_open(master.as_deref()).await;
                if bytes.is_empty() {
                    *master = None;
                    return None;
                }
                Some((Channel::Stdout, bytes))
            }
        }
    }
}

async fn read_open(source: Option<&AsyncFd<OwnedFd>>) -> Bytes {
    match source {
        Some(source) => read_some(source).await,
        None => Bytes::new(),
    }
}

/// Reads outputs, keeps the deadline, winds the run up.
async fn pump(agent: Shared, run: Rc<Run>, mut output: Output, deadline: Option<Deadline>) {
    let mut deadline = deadline;
    while run.state.borrow().exit.is_none() {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        let (exited, full) = {
            let state = run.state.borrow();
            (state.exit.is_some(), state.fresh.is_full())
        };
        if exited {
            break;
        }
        tokio::select! {
            () = changed => {}
            chunk = output.read(), if output.is_open() && !full => keep(&run, chunk),
            () = expired(deadline) => {
                deadline = None;
                run.state.borrow_mut().killed = Some(true);
                tree::end(&agent, &run).await;
            }
        }
    }
    let leftovers = tree::end_leftovers(&agent, &run).await;
    drain(&run, &mut output).await;
    finish(&run, leftovers);
}

pub(crate) async fn expired(deadline: Option<Deadline>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

pub(crate) fn keep(run: &Run, chunk: Option<(Channel, Bytes)>) {
    let Some((channel, bytes)) = chunk else { return };
    let mut state = run.state.borrow_mut();
    match channel {
        Channel::Stdout => state.stdout.push(&bytes),
        Channel::Stderr => state.stderr.push(&bytes),
    }
    state.fresh.push(channel, bytes);
    state.trim();
    run.changed.notify_waiters();
}

/// Reads what is still in the pipes. Someone else in the sandbox may have been handed an end, so
/// there is a limit to the patience.
pub(crate) async fn drain(run: &Run, output: &mut Output) {
    let mut patience = Deadline::now() + LINGER;
    while output.is_open() {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if run.state.borrow().fresh.is_full() {
            // A slow follower is no reason to lose output.
            changed.await;
            patience = Deadline::now() + LINGER;
            continue;
        }
        let chunk = match within(patience, output.read()).await {
            Some(chunk) => chunk,
            None => return,
        };
        keep(run, chunk);
    }
}

async fn within<T>(deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(deadline, work).await.ok()
}

pub(crate) fn finish(run: &Run, leftovers: u32) {
    let mut state = run.state.borrow_mut();
    let Some(reaped) = state.exit else { return };
    let spent = reaped.spent.and(state.others);
    let violations = state
        .refused
        .iter()
        .map(|(&number, &count)| Violation { call: call_name(number.into()), count })
        .collect();
    state.ended = Some(Ended {
        exit: reaped.exit,
        timed_out: state.killed == Some(true),
        wall_us: u64::try_from(run.started.elapsed().as_micros()).unwrap_or(u64::MAX),
        cpu_us: spent.cpu_us,
        peak_rss_kib: spent.peak_rss_kib,
        stdout_bytes: state.stdout.total(),
        stderr_bytes: state.stderr.total(),
        leftovers,
        violations,
        full: room::full_after(reaped.exit),
        // A tree that was ended from outside was not ended by a limit.
        exceeded: if state.killed.is_none() { exceeded(&run.limits, &reaped) } else { None },
        context: state.context,
        killed_for_memory: state.killed_for_memory,
        unrouted: routes::attempts_before(reaped.exit),
        transferred: spent.transferred,
        killed_for_processes: state.killed_for_processes,
        most_tasks: Some(state.most_tasks),
    });
    run.entrance.close();
    run.changed.notify_waiters();
}

/// Signals a run: its process group, or every process of it.
pub(crate) async fn signal(agent: &Shared, request: &SignalRequest) -> Reply {
    let known = agent.runs.get(&request.run);
    if known.is_none() && request.whole_tree && request.signal == libc::SIGKILL {
        agent.runs.condemn(&request.run);
    }
    let Some(run) = known.filter(|run| run.state.borrow().ended.is_none()) else {
        let doing = format!("signal {}", request.run);
        return Reply::Failed(Failure { kind: FailureKind::NoSuchRun, errno: libc::ESRCH, doing });
    };
    match (request.whole_tree, request.signal) {
        (true, libc::SIGKILL) => {
            run.state.borrow_mut().killed.get_or_insert(false);
            tree::end(agent, &run).await;
        }
        (true, signal) => tree::signal_all(agent, &run, signal),
        (false, signal) => tree::signal_group(&run, None, signal),
    }
    Reply::Done
}
