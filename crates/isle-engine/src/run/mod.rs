//! Runs: one command each, from its record before the start to its record after the end. The
//! verbs have files of their own; here is what a run is while it lives.

mod arguments;
mod commands;
mod environment;
pub(crate) mod events;
mod follow;
mod input;
pub(crate) mod job_output;
mod kill;
mod limits;
mod live;
mod outcome;
pub(crate) mod output;
mod plan;
mod program;
mod pump;
mod report;
mod requests;
mod result;
mod service;
mod session;
mod start;
mod take_over;
mod turn;
mod view;
mod wait;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use isle_store::RunNetwork;
use isle_wire::Transferred;
use tokio::sync::{Notify, watch};

use crate::context::{CallContext, CallerRole};
use crate::network::{QuestionSender, RunGrants};
use crate::sandbox::Sandbox;
use events::{EventLog, Happened, StreamName};
use isle_api::shapes::{CommandRecord, LimitHit, RunState, ViolationShape};
use isle_core::Error;
use isle_core::values::{ByteSize, ContextName, JobName, RunId, SandboxName, Span};
use isle_vault::MaskedStream;
use job_output::{JobOutput, JobOutputWriter};
use output::{KeptOutput, OutputBuffer};
use view::Viewers;

use arguments::check_limits_in;
pub(crate) use arguments::{AnswerOptions, directory, named_target, program, text_input};
pub(crate) use commands::CommandText;
pub use environment::SecretNames;
pub(crate) use environment::{check_environment, looks_secret};
pub(crate) use isle_api::RunLimits;
pub(crate) use kill::{KillRequest, finished, parse_signal};
pub(crate) use live::LiveRuns;
pub(crate) use outcome::lost_note;
pub(crate) use plan::{
    CodeSource, Input, NamedOptions, OnDisconnect, OneShotSlot, Plan, PlannedCommand, Program, RunKind,
    RunTarget, Runner, SimpleCommand,
};
pub(crate) use program::{Language, language_of};
pub(crate) use pump::{Pump, SESSION_DEPTH};
pub(crate) use report::CodeOutcome;
pub use requests::{Command, FollowFrom, OneShot, OpenExec, RunEvent, RunEventKind, Target};
pub(crate) use result::{Enforcement, RunSnapshot, answer_budget, no_such_run};
pub(crate) use service::{Runs, RunsParts};
pub use session::{Session, SessionEvent, SessionInput, SessionOutput};
pub(crate) use turn::NEVER_RAN;
pub(crate) use wait::OnCancel;

/// Why a run was ended from outside, if it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nobody ended it.
    Own,
    /// `kill` did.
    Killed,
    /// The caller no longer wanted it.
    Cancelled,
    /// Its sandbox was destroyed.
    Destroyed,
    /// Its sandbox was reset.
    Reset,
    /// The time of its sandbox was up.
    Expired,
    /// The agent did not end it when its time was up, so the engine did.
    Overdue,
    /// The daemon stopped, and it could not go on without.
    Stopped,
}

impl Ending {
    const ALL: [Self; 8] = [
        Self::Own,
        Self::Killed,
        Self::Cancelled,
        Self::Destroyed,
        Self::Reset,
        Self::Expired,
        Self::Overdue,
        Self::Stopped,
    ];
}

/// How a run ended.
#[derive(Debug, Clone)]
pub(crate) struct Finish {
    pub(crate) state: RunState,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) duration_ms: u64,
    pub(crate) cpu_us: Option<u64>,
    pub(crate) peak_rss_kib: Option<u64>,
    /// What it moved from and to disks.
    pub(crate) transferred: Option<Transferred>,
    /// What went through the gate of its sandbox in its time.
    pub(crate) network: Option<RunNetwork>,
    /// The most processes and threads of it that were seen at once.
    pub(crate) most_tasks: Option<u32>,
    pub(crate) violations: Vec<ViolationShape>,
    pub(crate) limits_hit: Vec<LimitHit>,
    pub(crate) note: Option<String>,
    /// Why it could not be started, when that is what happened.
    pub(crate) error: Option<Error>,
    /// What code gave back beside its output.
    pub(crate) code: Option<Arc<CodeOutcome>>,
    /// Of several commands: how each ended.
    pub(crate) commands: Vec<CommandRecord>,
}

/// A run that is going on, or ended a moment ago.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) kind: RunKind,
    /// The command, for people.
    pub(crate) command: String,
    pub(crate) started_at_ms: i64,
    pub(crate) timeout: Option<Span>,
    /// Limits of its own; none for a run taken over, whose agent knows them.
    pub(crate) limits: RunLimits,
    /// Something to say about how it was called.
    pub(crate) advice: Option<String>,
    /// Its name among the jobs of its sandbox.
    pub(crate) job: Option<JobName>,
    /// Whether it has a terminal.
    pub(crate) terminal: bool,
    /// Whether it runs alone among those of its sandbox that ask for it.
    pub(crate) locked: bool,
    /// The commands it consists of, when there are several.
    pub(crate) commands: Vec<CommandText>,
    /// What it could reach when it began; `None` for one that an earlier engine began.
    pub(crate) reach: Option<Vec<String>>,
    /// Values that must not be told with it.
    pub(crate) secrets: Vec<String>,
    started: Instant,
    /// Whether it waits for its turn.
    queued: AtomicBool,
    ending: AtomicU8,
    /// Somebody wants it to end.
    unwanted: Notify,
    /// Who waits for it and can be asked something, the newest last.
    askers: Mutex<Vec<QuestionSender>>,
    /// What it was granted while it goes on; `None` when it has ended.
    granted: Mutex<Option<Vec<RunGrants>>>,
    viewers: Mutex<Viewers>,
    context: OnceLock<ContextName>,
    live: Mutex<Live>,
    /// Set once, at the end.
    finish: watch::Sender<Option<Arc<Finish>>>,
    /// Id of the newest event, for those who follow.
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Live {
    stdout: OutputBuffer,
    stderr: OutputBuffer,
    /// What hides values of secrets in each output.
    masked: [MaskedStream; 2],
    log: EventLog,
    /// The files each output is kept in, when it is.
    writers: [Option<JobOutputWriter>; 2],
    /// What an interpreter reports, as it arrives.
    report: Vec<u8>,
    /// Ends of commands, as they arrive.
    steps: Vec<isle_wire::StepEnd>,
}

impl Run {
    pub(crate) fn new(
        id: RunId,
        sandbox: Arc<Sandbox>,
        kind: RunKind,
        command: String,
        started_at_ms: i64,
        timeout: Option<Span>,
        output_cap: ByteSize,
    ) -> Self {
        let cap = usize::try_from(output_cap.0).unwrap_or(usize::MAX);
        Self {
            id,
            sandbox,
            kind,
            command,
            started_at_ms,
            timeout,
            limits: RunLimits::default(),
            advice: None,
            job: None,
            terminal: false,
            locked: false,
            commands: Vec::new(),
            reach: None,
            secrets: Vec::new(),
            started: Instant::now(),
            queued: AtomicBool::new(false),
            ending: AtomicU8::new(Ending::Own as u8),
            unwanted: Notify::new(),
            askers: Mutex::default(),
            granted: Mutex::new(Some(Vec::new())),
            viewers: Mutex::default(),
            context: OnceLock::new(),
            live: Mutex::new(Live {
                stdout: OutputBuffer::new(cap),
                stderr: OutputBuffer::new(cap),
                masked: Default::default(),
                log: EventLog::default(),
                writers: [None, None],
                report: Vec::new(),
                steps: Vec::new(),
            }),
            finish: watch::Sender::new(None),
            newest: watch::Sender::new(0),
        }
    }

    pub(crate) fn sandbox_name(&self) -> &SandboxName {
        &self.sandbox.name
    }

    /// Says why it is being ended from outside. The first reason stays.
    pub(crate) fn intend(&self, ending: Ending) {
        self.ending
            .compare_exchange(Ending::Own as u8, ending as u8, Ordering::SeqCst, Ordering::SeqCst)
            .ok();
        self.unwanted.notify_waiters();
    }

    pub(crate) fn ending(&self) -> Ending {
        let value = self.ending.load(Ordering::SeqCst);
        Ending::ALL.into_iter().find(|ending| *ending as u8 == value).unwrap_or(Ending::Own)
    }

    /// A caller waits for it. Only the operator's can be asked what may be granted.
    pub(crate) fn awaited_by(&self, context: &CallContext) {
        if let (Some(asker), CallerRole::Operator) = (&context.questions, context.role) {
            let mut askers = crate::lock(&self.askers);
            askers.retain(|known| !known.is_closed() && !known.same_channel(asker));
            askers.push(asker.clone());
        }
    }

    /// Who can be asked something, the newest first.
    pub(crate) fn askers(&self) -> Vec<QuestionSender> {
        crate::lock(&self.askers).iter().rev().filter(|asker| !asker.is_closed()).cloned().collect()
    }

    /// Holds what it was granted until it ends; when it has, that is over at once.
    pub(crate) fn hold_grants(&self, grants: RunGrants) {
        if let Some(held) = &mut *crate::lock(&self.granted) {
            held.push(grants);
        }
    }

    /// It has ended, and so has what it was granted.
    fn end_grants(&self) {
        drop(crate::lock(&self.granted).take());
    }

    /// How it ended, if it has.
    pub(crate) fn finish(&self) -> Option<Arc<Finish>> {
        self.finish.borrow().clone()
    }

    pub(crate) fn state(&self) -> RunState {
        let going_on = || if self.is_queued() { RunState::Queued } else { RunState::Running };
        self.finish.borrow().as_ref().map_or_else(going_on, |finish| finish.state)
    }

    /// Whether it waits for its turn.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::SeqCst)
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn kept(&self) -> (KeptOutput, KeptOutput) {
        let live = crate::lock(&self.live);
        (live.stdout.kept(), live.stderr.kept())
    }

    /// Bytes of output in memory.
    fn held_bytes(&self) -> usize {
        let reported =
            self.finish().and_then(|finish| finish.code.as_ref().map(|code| code.bytes)).unwrap_or(0);
        let live = crate::lock(&self.live);
        live.stdout.held() + live.stderr.held() + live.log.held() + reported
    }

    /// Has all its output kept in files, when it is a job.
    pub(crate) fn keep_in(&self, files: Option<&JobOutput>) {
        if let Some(files) = files.filter(|_| self.kind == RunKind::Job) {
            let streams = [StreamName::Stdout, StreamName::Stderr];
            crate::lock(&self.live).writers = streams.map(|stream| Some(files.of(&self.id, stream)));
        }
    }

    /// Says in which context it runs.
    fn set_context(&self, context: Option<ContextName>) {
        if let Some(context) = context {
            // Said once, before it starts.
            self.context.set(context).ok();
        }
    }

    /// Bytes of each output so far: standard output, standard error.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let live = crate::lock(&self.live);
        (live.stdout.total(), live.stderr.total())
    }

    /// Bytes of both outputs so far.
    fn output_bytes(&self) -> u64 {
        let live = crate::lock(&self.live);
        live.stdout.total() + live.stderr.total()
    }

    fn note_started(&self) {
        let newest = {
            let mut live = crate::lock(&self.live);
            live.log.note(Happened::Started);
            live.log.last_id()
        };
        self.newest.send_replace(newest);
    }

    /// It wrote; what may be shown of it is the answer.
    fn note_output(&self, stream: StreamName, bytes: &bytes::Bytes) -> bytes::Bytes {
        let masker = self.sandbox.masker();
        let mut live = crate::lock(&self.live);
        let shown = live.masked[stream as usize].push(masker.as_ref(), bytes);
        self.show_output(live, stream, &shown);
        shown
    }

    /// Whether something of its output is held back that can be shown when nothing follows.
    fn holds_output(&self) -> bool {
        crate::lock(&self.live).masked.iter().any(MaskedStream::holds)
    }

    /// It has not written for a while; what was held back of one of its outputs is the answer.
    fn release_output(&self, stream: StreamName) -> bytes::Bytes {
        let masker = self.sandbox.masker();
        let mut live = crate::lock(&self.live);
        let shown = live.masked[stream as usize].release(masker.as_ref());
        self.show_output(live, stream, &shown);
        shown
    }

    /// It writes nothing more to one of its outputs; what was held back of it is the answer.
    fn flush_output(&self, stream: StreamName) -> bytes::Bytes {
        let masker = self.sandbox.masker();
        let mut live = crate::lock(&self.live);
        let shown = live.masked[stream as usize].finish(masker.as_ref());
        self.show_output(live, stream, &shown);
        shown
    }

    fn show_output(&self, mut live: MutexGuard<'_, Live>, stream: StreamName, shown: &bytes::Bytes) {
        if shown.is_empty() {
            return;
        }
        let Live { stdout, stderr, writers, .. } = &mut *live;
        let kept = match stream {
            StreamName::Stdout => stdout,
            StreamName::Stderr => stderr,
        };
        if let Some(writer) = &mut writers[stream as usize]
            && kept.overflows(shown.len())
        {
            // From here on there may be a middle that is not kept elsewhere.
            writer.append(0, kept.head());
            writer.append(kept.total(), shown);
        }
        kept.push(shown);
        live.log.output(stream, shown);
        let newest = live.log.last_id();
        drop(live);
        self.newest.send_replace(newest);
    }

    fn note_gap(&self, stdout: u64, stderr: u64) {
        let newest = {
            let mut live = crate::lock(&self.live);
            live.stdout.skip(stdout);
            live.stderr.skip(stderr);
            live.log.note(Happened::Gap([stdout, stderr]));
            live.log.last_id()
        };
        self.newest.send_replace(newest);
    }

    /// Publishes the end; everybody who waits or follows wakes.
    pub(crate) fn publish(&self, finish: Finish) -> Arc<Finish> {
        let newest = {
            let mut live = crate::lock(&self.live);
            live.log.flush();
            live.log.last_id() + 1
        };
        let finish = Arc::new(finish);
        self.finish.send_replace(Some(Arc::clone(&finish)));
        self.newest.send_replace(newest);
        finish
    }

    /// The last line it printed, for a sign of life.
    fn last_line(&self) -> Option<String> {
        let live = crate::lock(&self.live);
        let bytes = if live.stdout.total() > 0 { live.stdout.last(400) } else { live.stderr.last(400) };
        drop(live);
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(line.trim().chars().take(200).collect())
    }
}
