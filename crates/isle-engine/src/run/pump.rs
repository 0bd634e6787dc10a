//! The one task of a run: sends the request and the input, takes the output, sees the end, walks
//! the last stages of the pipeline, and cleans up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::OptionFuture;
use isle_fail::Point;
use isle_wire::{ExecEvent, Frame, FrameError, Request, read_frame, write_message};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::SessionEvent;
use super::events::StreamName;
use super::limits::{Counters, Happenings};
use super::outcome::{End, SANDBOX_KILLED, classify};
use super::program::Language;
use super::{Ending, Finish, Run, Runs, report};
use crate::agent::{AgentStream, ExecInput, broken, forward_input, gone, unresponsive};
use crate::network::{Began, RunGrants, RunTraffic};
use crate::pipeline::{self, Unrecorded, Validated};
use crate::sandbox::{LockHeld, LockRequest, OneShotGuard};
use crate::secrets::RunSecrets;
use isle_core::Error;
use isle_core::backend::Lifetime;
use isle_core::values::GuestPath;

/// Chunks an interactive caller may be behind before the command has to wait for it.
pub(crate) const SESSION_DEPTH: usize = 16;
/// How much later than the agent the engine ends a run itself.
const MARGIN: Duration = Duration::from_secs(10);
/// How long a killed run may take to be reported as ended.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How long a caller is kept waiting by an agent that is known not to answer.
const SILENCE: Duration = Duration::from_secs(5);
/// How long the end of an output is held back, in which the value of a secret may begin.
const HELD_BACK: Duration = Duration::from_millis(100);
const SIGKILL: i32 = 9;
/// How long to wait before the end of a run is recorded again.
const RECORD_AGAIN: Duration = Duration::from_secs(1);
/// How much output an agent may hold after its run until another run comes.
const KEPT_UNTIL_NEXT_RUN: u64 = 16 * 1024;

/// Everything the task of a run owns.
pub(crate) struct Pump {
    pub(crate) runs: Arc<Runs>,
    pub(crate) run: Arc<Run>,
    pub(crate) passage: Validated,
    pub(crate) stream: AgentStream,
    /// What to start; `None` when the stream follows a run that is going on.
    pub(crate) request: Option<Request>,
    pub(crate) input: ExecInput,
    /// An interactive caller: gets every byte, and its going ends the run.
    pub(crate) caller: Option<Caller>,
    pub(crate) named: String,
    pub(crate) language: Option<Language>,
    pub(crate) remove_after: Option<(GuestPath, isle_wire::GuestUser)>,
    pub(crate) guard: Option<Arc<OneShotGuard>>,
    /// What it may reach as long as it goes on.
    pub(crate) grants: Option<RunGrants>,
    /// Secrets that are its own.
    pub(crate) secrets: Option<RunSecrets>,
    /// Its place before the lock of its sandbox, when it asked for that.
    pub(crate) entered: Option<LockRequest>,
}

/// An interactive caller.
pub(crate) struct Caller {
    pub(crate) events: mpsc::Sender<SessionEvent>,
    pub(crate) cancelled: CancellationToken,
    /// It reads slowly, and output waits for it.
    pub(crate) lags: AtomicBool,
}

impl Caller {
    async fn tell(&self, stream: StreamName, bytes: bytes::Bytes) {
        let event = match stream {
            StreamName::Stdout => SessionEvent::Stdout(bytes),
            StreamName::Stderr => SessionEvent::Stderr(bytes),
        };
        self.lags.store(true, Ordering::Relaxed);
        // One who is gone hears nothing.
        self.events.send(event).await.ok();
        self.lags.store(false, Ordering::Relaxed);
    }

    async fn tell_end(self, runs: &Runs, run: &Arc<Run>) {
        let result = runs.snapshot_of(run).result(super::answer_budget(None, &runs.config));
        self.events.send(SessionEvent::Ended(Box::new(result))).await.ok();
    }
}

impl Pump {
    /// Follows the run to its end.
    pub(crate) async fn run(self) {
        let Self {
            runs,
            run,
            passage,
            mut stream,
            request,
            mut input,
            caller,
            named,
            language,
            remove_after,
            guard,
            grants,
            secrets,
            entered,
        } = self;
        let sandbox = Arc::clone(&run.sandbox);
        let turn = match entered {
            None => None,
            Some(entered) => match take_turn(&runs, &run, entered, &mut input, caller.as_ref()).await {
                Ok(turn) => Some(turn),
                Err(finish) => return never_begun(&runs, &run, passage, *finish, caller).await,
            },
        };
        let begins = request.is_some();
        let window = RunTraffic::open(&sandbox, if begins { Began::Now } else { Began::Earlier });
        let sent = match request {
            Some(request) => match write_message(&mut stream, &request).await {
                Ok(()) => isle_fail::fail(Point::ExecSent).map_err(FrameError::Io),
                broken => broken,
            },
            None => Ok(()),
        };
        // A run in a named sandbox outlives the engine, unless somebody interactive is attached.
        let outlives = guard.is_none() && caller.is_none();
        let silent = match &input {
            ExecInput::Null => true,
            ExecInput::Kept(bytes) => bytes.is_empty(),
            ExecInput::Bytes(_) | ExecInput::Live { .. } => false,
        };
        if sent.is_ok() && outlives && silent {
            // Nothing follows, and said now it needs no message of its own at the end.
            stream.shutdown().await.ok();
        }
        if sent.is_ok() {
            run.note_started();
            // What follows can be done while the agent starts the command, so the request goes out first.
            tokio::task::yield_now().await;
            if begins {
                runs.notifier.run_started(&run);
            }
        }
        // Read while the agent is busy starting the command: nothing can reach a limit that soon.
        let before = Counters::read(&run).await;
        let halted = runs.tasks.halted().clone();
        let leaving = (!outlives).then(|| runs.tasks.leaving().clone());
        let watch = Watch { runs: &runs, run: &run, caller: caller.as_ref(), leaving: leaving.as_ref() };
        let end = match sent {
            Err(error) => End::Broken(broken(error)),
            Ok(()) if outlives => tokio::select! {
                biased;
                end = watch.drive(stream, input) => end,
                // Its record stays open and the agent keeps its output: the next start goes on here.
                () = halted.cancelled() => return,
            },
            Ok(()) => watch.drive(stream, input).await,
        };
        // What was held back, because it might have become the value of a secret, is heard now.
        for stream in [StreamName::Stdout, StreamName::Stderr] {
            let rest = run.flush_output(stream);
            if let Some(caller) = caller.as_ref().filter(|_| !rest.is_empty()) {
                caller.tell(stream, rest).await;
            }
        }
        isle_fail::pass(Point::ExecEnded);
        let was_ended = !matches!(end, End::Broken(_));
        if !was_ended {
            // Only the stream may have broken: nothing may run on that is told as lost.
            end_tree(&run).await;
        }
        let happenings = match &end {
            End::Ended(ended) => Happenings::since(before, &run, ended).await,
            End::Failed(_) | End::Broken(_) => Happenings::default(),
        };
        let fate = if let End::Ended(ended) = &end { ended.context } else { None };
        let mut finish = classify(&run, end, &named, language, &window, happenings);
        drop((grants, secrets, window));
        run.end_grants();
        report::complete(&run, &mut finish, fate);
        if let Some(advice) = &run.advice {
            finish.note =
                Some(finish.note.map_or_else(|| advice.clone(), |note| format!("{note}; {advice}")));
        }
        let reflected = run.sandbox.secrets.get().and_then(|secrets| secrets.reflections_since(run.started));
        if let Some(reflected) = reflected {
            finish.note =
                Some(finish.note.map_or_else(|| reflected.clone(), |note| format!("{note}; {reflected}")));
        }
        run.complete_commands(&mut finish);

        let executed = passage.executed(finish);
        let masked = pipeline::mask(executed, &run);
        let audited = pipeline::audit(masked, &runs.journal, &run).insist(&runs.journal, &run).await;

        isle_fail::pass(Point::ExecFinished);
        let (finish, unrecorded) = audited.into_parts();
        sandbox.run_ends();
        let finish = run.publish(finish);
        runs.live.ended(&run);
        // The next may begin: nothing of this one is left.
        drop(turn);
        isle_fail::pass(Point::ExecTold);
        // Whoever waits for it is answered before the rest is done.
        tokio::task::yield_now().await;
        runs.notifier.run_ended(&run, &finish);
        // A one-shot takes its files and its agent with it.
        let one_shot = guard.is_some();
        drop(guard);
        if let Some(caller) = caller {
            caller.tell_end(&runs, &run).await;
        }
        runs.journal.run_ended();
        if let Some(unrecorded) = unrecorded
            && !record_later(&runs, &run, &unrecorded).await
        {
            // The agent still has it: the next start records it.
            return;
        }
        if !one_shot && let Ok(agent) = sandbox.agent() {
            if let Some((path, user)) = remove_after {
                agent.remove(&path, user, false).await.ok();
            }
            // Little output may wait for the next request to carry the word; much is let go at once.
            if run.output_bytes() > KEPT_UNTIL_NEXT_RUN || !sandbox.forget_later(&run.id) {
                agent.forget(run.id.as_str()).await.ok();
                isle_fail::pass(Point::ExecForgotten);
            }
        }
    }
}

/// Waits for the turn of a run, as long as its caller wants it.
async fn take_turn(
    runs: &Arc<Runs>,
    run: &Run,
    entered: LockRequest,
    input: &mut ExecInput,
    caller: Option<&Caller>,
) -> Result<LockHeld, Box<Finish>> {
    let watch = Watch { runs, run, caller, leaving: None };
    let mut turn = std::pin::pin!(run.take_turn(runs, entered));
    tokio::select! {
        biased;
        turn = &mut turn => return turn,
        _ = watch.unwanted() => {}
        () = input.until_signalled() => {}
    }
    run.intend(Ending::Cancelled);
    turn.await
}

/// Records the end of a run whose turn never came.
async fn never_begun(
    runs: &Runs,
    run: &Arc<Run>,
    passage: Validated,
    mut finish: Finish,
    caller: Option<Caller>,
) {
    run.complete_commands(&mut finish);
    let masked = pipeline::mask(passage.not_executed(finish), run);
    let audited = pipeline::audit(masked, &runs.journal, run).insist(&runs.journal, run).await;
    let (finish, unrecorded) = audited.into_parts();
    run.sandbox.run_ends();
    runs.notifier.run_ended(run, &finish);
    run.publish(finish);
    runs.live.ended(run);
    if let Some(caller) = caller {
        caller.tell_end(runs, run).await;
    }
    runs.journal.run_ended();
    if let Some(unrecorded) = unrecorded {
        record_later(runs, run, &unrecorded).await;
    }
}

/// Tries to record an end until it works; `false` when the engine stops before.
async fn record_later(runs: &Runs, run: &Run, unrecorded: &Unrecorded) -> bool {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RECORD_AGAIN) => {}
            () = runs.tasks.halted().cancelled() => return false,
        }
        if unrecorded.record(&runs.journal, run) {
            tracing::info!(run = %run.id, "the end of a run is recorded after all");
            return true;
        }
    }
}

/// What is watched while a run goes on.
struct Watch<'a> {
    runs: &'a Arc<Runs>,
    run: &'a Run,
    caller: Option<&'a Caller>,
    /// Fires when the run cannot go on; `None` when it outlives the engine.
    leaving: Option<&'a CancellationToken>,
}

impl Watch<'_> {
    async fn drive(&self, mut stream: AgentStream, input: ExecInput) -> End {
        match input {
            ExecInput::Null => self.over(self.receive(&mut stream), std::future::pending()).await,
            input => {
                let (mut reader, mut writer) = tokio::io::split(stream);
                let sending = async {
                    // A command may end without having read its input; its end tells more than that.
                    forward_input(&mut writer, input).await.ok();
                };
                self.over(self.receive(&mut reader), sending).await
            }
        }
    }

    /// Takes output until the end, while input is sent; ends the run when nobody wants it any more
    /// or the agent missed its deadline.
    async fn over(&self, receiving: impl Future<Output = End>, sending: impl Future<Output = ()>) -> End {
        let mut deadline = self.run.timeout.map(|timeout| Instant::now() + timeout.0 + MARGIN);
        tokio::pin!(receiving, sending);
        let (mut sent, mut killed) = (false, false);
        loop {
            let alarm = OptionFuture::from(deadline.map(tokio::time::sleep_until));
            let ending = tokio::select! {
                biased;
                end = &mut receiving => return end,
                () = &mut sending, if !sent => {
                    sent = true;
                    continue;
                }
                ending = self.unwanted(), if !killed => ending,
                () = self.silent_for_good() => return End::Broken(unresponsive()),
                Some(()) = alarm => Ending::Overdue,
            };
            // An interactive caller who reads slowly holds the end back; that is no fault of the agent's.
            if ending == Ending::Overdue
                && self.caller.is_some_and(|caller| caller.lags.load(Ordering::Relaxed))
            {
                deadline = Some(Instant::now() + MARGIN);
                continue;
            }
            if killed {
                // Nothing may go on that is told as ended, whatever the agent does or does not do.
                self.run.sandbox.kill_from_outside("the end of a killed run was not reported");
                let error = Error::internal("the agent did not report the end of a killed run");
                return End::Broken(error.detail(SANDBOX_KILLED, true));
            }
            self.run.intend(ending);
            killed = true;
            end_tree(self.run).await;
            // One that does not answer will not report the end either.
            let patience = if self.run.sandbox.is_unresponsive() { Duration::ZERO } else { LAST_WORDS };
            deadline = Some(Instant::now() + patience);
        }
    }

    /// Resolves when the agent of a one-shot, or of a sandbox in which a caller follows a command, has not
    /// answered for so long that nobody waits for it any more.
    async fn silent_for_good(&self) {
        if self.run.sandbox.spec.lifetime != Lifetime::OneShot && self.caller.is_none() {
            return std::future::pending().await;
        }
        loop {
            self.run.sandbox.falls_silent().await;
            tokio::time::sleep(SILENCE).await;
            if self.run.sandbox.is_unresponsive() {
                return;
            }
        }
    }

    /// Resolves when the caller of an interactive command is gone, or the engine leaves.
    async fn unwanted(&self) -> Ending {
        let leaving = OptionFuture::from(self.leaving.map(CancellationToken::cancelled));
        let abandoned = async {
            match self.caller {
                Some(caller) => tokio::select! {
                    () = caller.events.closed() => {}
                    () = caller.cancelled.cancelled() => {}
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(()) = leaving => Ending::Stopped,
            () = abandoned => Ending::Cancelled,
        }
    }
}

/// Ends every process of a run.
pub(super) async fn end_tree(run: &Run) {
    let Ok(agent) = run.sandbox.agent() else { return };
    let signal = agent.signal(run.id.as_str(), SIGKILL, true);
    // An agent that does not answer this will not answer anything; the deadline after it decides.
    if tokio::time::timeout(LAST_WORDS, signal).await.is_err() {
        tracing::warn!(run = %run.id, "the agent did not answer a kill");
    }
}

/// Shows what was held back of the output while nothing followed it.
async fn release(run: &Run, caller: Option<&Caller>) {
    for stream in [StreamName::Stdout, StreamName::Stderr] {
        let shown = run.release_output(stream);
        if let Some(caller) = caller.filter(|_| !shown.is_empty()) {
            caller.tell(stream, shown).await;
        }
    }
}

async fn hear(run: &Run, caller: Option<&Caller>, stream: StreamName, bytes: &bytes::Bytes) {
    let shown = run.note_output(stream, bytes);
    if let Some(caller) = caller.filter(|_| !shown.is_empty()) {
        caller.tell(stream, shown).await;
    }
}

impl Watch<'_> {
    /// Takes what the agent sends until the end.
    async fn receive<R: AsyncRead + Unpin>(&self, stream: &mut R) -> End {
        let (run, caller) = (self.run, self.caller);
        loop {
            let reading = read_frame(stream);
            tokio::pin!(reading);
            let read = loop {
                if !run.holds_output() {
                    break reading.await;
                }
                tokio::select! {
                    biased;
                    read = &mut reading => break read,
                    () = tokio::time::sleep(HELD_BACK) => release(run, caller).await,
                }
            };
            let frame = match read {
                Ok(Some(frame)) => frame,
                Ok(None) => return End::Broken(gone()),
                Err(error) => return End::Broken(broken(error)),
            };
            match frame {
                Frame::Stdout(bytes) => hear(run, caller, StreamName::Stdout, &bytes).await,
                Frame::Stderr(bytes) => hear(run, caller, StreamName::Stderr, &bytes).await,
                frame @ Frame::Message(_) => match frame.decode() {
                    // An agent may say so, and then whoever ended the run before is heard now at the latest.
                    Ok(ExecEvent::Started) => {
                        if run.ending() != Ending::Own {
                            end_tree(run).await;
                        }
                    }
                    Ok(ExecEvent::Skipped(skipped)) => run.note_gap(skipped.stdout, skipped.stderr),
                    Ok(ExecEvent::Step(step)) => {
                        // Its place among what is shown is known when all of it is.
                        release(run, caller).await;
                        run.note_step(step);
                    }
                    Ok(ExecEvent::NameAsked) => self.runs.network.open_gate_later(&run.sandbox),
                    Ok(ExecEvent::Ended(ended)) => return End::Ended(ended),
                    Ok(ExecEvent::Failed(failure)) => return End::Failed(failure),
                    Err(error) => return End::Broken(broken(error)),
                },
                Frame::Data(bytes) => run.note_report(&bytes),
                Frame::Stdin(_) | Frame::End => {
                    return End::Broken(Error::internal(
                        "the agent sent a frame that does not belong to a run",
                    ));
                }
            }
        }
    }
}
