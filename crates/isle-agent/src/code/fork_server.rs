//! Calls without a context in Python: each is a child of a fork server and inherits no state of other
//! calls. All children of a server have the server's tag, so the processes of a call are found by descent:
//! its first process is a subreaper, and what is left when it exits is reparented to the server. There
//! every child that is neither a call nor the prepared child for the next one is killed.

use std::cell::{Cell as Flag, RefCell};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use isle_wire::{CodeRequest, Exit, Transferred};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::Instant as Deadline;

use super::channel::{InterpreterChannel, Message, TakeOver, encode_call, pair};
use super::fail;
use super::read_now::read_now;
use crate::async_fd::register;
use crate::processes::proc_stat;
use crate::processes::proc_tree::{children, descendants};
use crate::processes::{self, InterpreterSlot};
use crate::reap::exit_of;
use crate::resource_usage::{self, ResourceUsage};
use crate::run::{KillReason, Output, Reaped, Run, drain, expired, finish, keep};
use crate::serve::Shared;

/// The exit status of a server that cannot work here.
const UNABLE: i32 = 3;

/// Timeout for a child to take a call: longer than starting Python takes on a busy host.
const TAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a server may be stopped: longer than when the sandbox has used up its CPU time.
const MAX_STOPPED: Duration = Duration::from_secs(1);
/// How often a stopped server is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// What happened to a call that was passed to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandOver {
    /// A child has it.
    Taken,
    /// The server cannot take calls; nothing of the call was executed.
    Rejected,
    /// The server exited.
    Lost,
}

/// A call that was passed to the server and not taken yet.
type Waiting = (Rc<Run>, oneshot::Sender<HandOver>);

/// A fork server.
pub(super) struct ForkServer {
    pub(super) process: Rc<Run>,
    control: InterpreterChannel,
    /// Its own PID, which is not that of its supervisor.
    pid: Flag<i32>,
    /// The prepared child, and whether another one is being forked.
    idle: Flag<i32>,
    making: Flag<bool>,
    calls: RefCell<HashMap<i32, Rc<Run>>>,
    waiting: RefCell<HashMap<i64, Waiting>>,
    next: Flag<i64>,
    gone: Flag<bool>,
    /// Since when a call waits without a message from the server.
    unanswered: Flag<Option<Instant>>,
    pub(super) used: Flag<Instant>,
}

impl ForkServer {
    pub(super) fn new(
        agent: &Shared,
        process: Rc<Run>,
        control: InterpreterChannel,
        output: Output,
    ) -> Rc<Self> {
        let server = Rc::new(Self {
            process,
            control,
            pid: Flag::new(0),
            idle: Flag::new(0),
            making: Flag::new(false),
            calls: RefCell::default(),
            waiting: RefCell::default(),
            next: Flag::new(1),
            gone: Flag::new(false),
            unanswered: Flag::new(None),
            used: Flag::new(Instant::now()),
        });
        tokio::task::spawn_local(server.clone().run_task(agent.clone(), output));
        server
    }

    pub(super) fn has_exited(&self) -> bool {
        self.gone.get() || self.process.state.borrow().exit.is_some()
    }

    /// Whether a call can be passed to it. Code of the sandbox can stop it, or the prepared child,
    /// permanently.
    pub(super) async fn responds(&self) -> bool {
        let begun = Instant::now();
        while self.is_stopped() {
            if begun.elapsed() > MAX_STOPPED {
                return false;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        self.unanswered.get().is_none_or(|since| since.elapsed() < TAKE_TIMEOUT)
    }

    fn is_stopped(&self) -> bool {
        // Its PID comes with its first message.
        let own =
            Some(self.pid.get()).filter(|&pid| pid > 0).or_else(|| processes::first_process(&self.process));
        let idle = Some(self.idle.get()).filter(|&pid| pid > 0);
        let mut both = own.into_iter().chain(idle);
        both.any(|pid| proc_stat::read_stat(pid).is_some_and(|seen| seen.is_stopped()))
    }

    /// Whether there are no calls in it.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.borrow().is_empty() && self.waiting.borrow().is_empty()
    }

    /// The call whose first process has this PID.
    pub(super) fn call_of(&self, pid: i32) -> Option<Rc<Run>> {
        self.calls.borrow().get(&pid).cloned()
    }

    async fn run_task(self: Rc<Self>, agent: Shared, mut output: Output) {
        let mut ended = VecDeque::new();
        let mut open = true;
        while self.process.state.borrow().exit.is_none() {
            let mut process = pin!(self.process.changed.notified());
            process.as_mut().enable();
            if self.process.state.borrow().exit.is_some() {
                break;
            }
            tokio::select! {
                () = process => {}
                // Only a failing server writes there.
                _ = output.read(), if output.is_open() => {}
                message = self.control.next(), if open => match message {
                    Some(message) => self.handle(&agent, &message, &mut ended),
                    None => open = false,
                },
            }
            if !ended.is_empty() {
                self.kill_unknown_children(&agent, &mut ended).await;
                for (pid, reaped) in ended.drain(..) {
                    self.call_exited(pid, reaped);
                }
            }
        }
        self.finish(&agent, ended).await;
    }

    fn handle(&self, agent: &Shared, message: &Message, ended: &mut VecDeque<(i32, Reaped)>) {
        self.unanswered.set(None);
        let numbers = message.numbers();
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        let pid = |at: usize| i32::try_from(number(at)).unwrap_or(0);
        match message.kind {
            b'A' => self.making.set(true),
            b'I' => {
                self.making.set(false);
                self.idle.set(pid(0));
                self.pid.set(pid(1));
            }
            b'F' => {
                self.idle.set(0);
                self.taken(agent, number(0), pid(1));
            }
            b'X' => {
                let status = i32::try_from(number(1)).unwrap_or(0);
                let positive = |at: usize| u64::try_from(number(at)).unwrap_or(0);
                let usage = ResourceUsage {
                    cpu_us: positive(2),
                    peak_rss_kib: positive(3),
                    transferred: Some(Transferred {
                        read_bytes: resource_usage::blocks(number(4)),
                        written_bytes: resource_usage::blocks(number(5)),
                    }),
                };
                if self.idle.get() == pid(0) {
                    self.idle.set(0);
                }
                ended.push_back((pid(0), Reaped { exit: exit_of(status), usage }));
            }
            _ => {}
        }
    }

    fn taken(&self, agent: &Shared, number: i64, pid: i32) {
        let handed = self.waiting.borrow_mut().remove(&number);
        // Without one the call was killed, and the child sees its socket closed. Until it has exited it
        // counts as the prepared child.
        let Some((run, handed)) = handed else {
            return self.idle.set(pid);
        };
        run.processes.set_interpreter_slot(InterpreterSlot::Forked(pid));
        self.calls.borrow_mut().insert(pid, run.clone());
        handed.send(HandOver::Taken).ok();
        if run.state.borrow().killed.is_some() {
            let agent = agent.clone();
            tokio::task::spawn_local(async move { processes::kill_all(&agent, &run).await });
        }
    }

    fn call_exited(&self, pid: i32, reaped: Reaped) {
        let Some(run) = self.calls.borrow_mut().remove(&pid) else { return };
        run.state.borrow_mut().exit = Some(reaped);
        run.changed.notify_waiters();
    }

    /// Kills children of the server that belong to no call.
    async fn kill_unknown_children(&self, agent: &Shared, ended: &mut VecDeque<(i32, Reaped)>) {
        loop {
            let listed = children(self.pid.get());
            // Every listed child was announced before it was forked: these messages are read first.
            while let Some(message) = self.control.next_now() {
                self.handle(agent, &message, ended);
            }
            while self.making.get() {
                let Some(message) = self.control.next().await else { return };
                self.handle(agent, &message, ended);
            }
            let known = |pid: i32| {
                pid == self.idle.get()
                    || self.calls.borrow().contains_key(&pid)
                    || ended.iter().any(|&(other, _)| other == pid)
            };
            let unknown: Vec<i32> = listed.into_iter().filter(|&pid| !known(pid)).collect();
            if unknown.is_empty() {
                return;
            }
            for pid in unknown {
                kill_family(pid);
            }
            // Killed processes take a moment to exit; the server reaps them meanwhile.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn finish(&self, agent: &Shared, ended: VecDeque<(i32, Reaped)>) {
        self.gone.set(true);
        processes::kill_leftovers(agent, &self.process).await;
        for (pid, reaped) in ended {
            self.call_exited(pid, reaped);
        }
        let mut rest = VecDeque::new();
        while let Some(message) = self.control.next_now() {
            self.handle(agent, &message, &mut rest);
        }
        for (pid, reaped) in rest {
            self.call_exited(pid, reaped);
        }
        finish(agent, &self.process, 0);
        agent.runs.remove(&self.process.id);
        let unable = self.process.state.borrow().exit.is_some_and(|reaped| reaped.exit == Exit::Code(UNABLE));
        let handed = if unable && self.pid.get() == 0 { HandOver::Rejected } else { HandOver::Lost };
        for (_, (_, sender)) in self.waiting.take() {
            sender.send(handed).ok();
        }
        let calls: Vec<i32> = self.calls.borrow().keys().copied().collect();
        for pid in calls {
            self.call_exited(pid, killed());
        }
    }

    /// Executes one call. `Rejected` when it has to be executed elsewhere.
    pub(super) async fn run(
        &self,
        agent: &Shared,
        run: &Rc<Run>,
        request: &CodeRequest,
        stdin: Option<OwnedFd>,
        deadline: Option<Deadline>,
    ) -> HandOver {
        self.used.set(Instant::now());
        let (control, mut output, handed) = match self.hand_over(run, stdin) {
            Ok(all) => all,
            Err(error) => {
                fail(agent, run, crate::files::failure(&error, "start the interpreter"));
                return HandOver::Taken;
            }
        };
        let mut handed = pin!(handed);
        let message = encode_call(&agent.mode.paths, request, TakeOver::Everything);
        let mut sending = pin!(control.send(&message));
        let (mut sent, mut taken, mut open, mut deadline) = (false, false, true, deadline);
        let mut late = pin!(tokio::time::sleep(TAKE_TIMEOUT));
        loop {
            let mut changed = pin!(run.changed.notified());
            changed.as_mut().enable();
            let (exited, full, unwanted) = {
                let state = run.state.borrow();
                (state.exit.is_some(), state.fresh.is_full(), state.killed.is_some() && !taken)
            };
            if unwanted {
                // Not taken yet: the child that takes it finds the socket closed.
                self.waiting.borrow_mut().retain(|_, (waiting, _)| !Rc::ptr_eq(waiting, run));
                run.state.borrow_mut().exit = Some(killed());
                finish(agent, run, 0);
                return HandOver::Taken;
            }
            if exited {
                break;
            }
            tokio::select! {
                () = changed => {}
                answer = &mut handed, if !taken => match answer.unwrap_or(HandOver::Lost) {
                    HandOver::Taken => taken = true,
                    HandOver::Rejected => return HandOver::Rejected,
                    HandOver::Lost => run.state.borrow_mut().exit = Some(killed()),
                },
                () = &mut late, if !taken => {
                    late.as_mut().reset(Deadline::now() + TAKE_TIMEOUT);
                    if !agent.pause.is_on() {
                        let (agent, process) = (agent.clone(), self.process.clone());
                        tokio::task::spawn_local(async move { processes::kill_all(&agent, &process).await });
                    }
                }
                _ = &mut sending, if !sent => sent = true,
                chunk = output.read(), if output.is_open() && !full => keep(run, chunk),
                message = control.next(), if open => match message {
                    None => {
                        open = false;
                        // A child that exited before it could report that it had taken the call.
                        if !taken && run.processes.interpreter_slot().is_some_and(|slot| matches!(slot, InterpreterSlot::Waiting)) {
                            run.state.borrow_mut().exit = Some(killed());
                        }
                    }
                    Some(message) => match message.kind {
                        b'R' => run.state.borrow_mut().report = Some(message.payload),
                        b'E' => {
                            let errno = i32::try_from(message.numbers().first().copied().unwrap_or(0)).unwrap_or(0);
                            let error = std::io::Error::from_raw_os_error(errno);
                            run.state.borrow_mut().failed =
                                Some(crate::files::failure(&error, "enter the working directory"));
                        }
                        _ => {}
                    },
                },
                () = expired(deadline) => {
                    deadline = None;
                    run.state.borrow_mut().killed = Some(KillReason::TimedOut);
                    let (agent, run) = (agent.clone(), run.clone());
                    tokio::task::spawn_local(async move { super::kill(&agent, &run).await });
                }
            }
        }
        while let Some(message) = control.next_now() {
            if message.kind == b'R' {
                run.state.borrow_mut().report = Some(message.payload);
            }
        }
        while let Some(chunk) = read_now(&mut output) {
            keep(run, Some(chunk));
        }
        drain(run, &mut output).await;
        self.used.set(Instant::now());
        let leftovers = run.state.borrow().leftovers;
        finish(agent, run, leftovers);
        HandOver::Taken
    }

    fn hand_over(
        &self,
        run: &Rc<Run>,
        stdin: Option<OwnedFd>,
    ) -> std::io::Result<(InterpreterChannel, Output, oneshot::Receiver<HandOver>)> {
        let (control, [their_control, their_reply]) = pair()?;
        let (stdout, their_stdout) = output_pipe()?;
        let (stderr, their_stderr) = output_pipe()?;
        let their_stdin = match stdin {
            Some(stdin) => stdin,
            None => {
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
                rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?
            }
        };
        let number = self.next.get();
        self.next.set(if number < 99_999_999 { number + 1 } else { 1 });
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(number, (run.clone(), sender));
        let word = format!("{number:08}");
        let descriptors = [&their_stdin, &their_stdout, &their_stderr, &their_control, &their_reply];
        if let Err(error) = self.control.hand_over(word.as_bytes(), &descriptors) {
            self.waiting.borrow_mut().remove(&number);
            return Err(error);
        }
        self.unanswered.set(self.unanswered.get().or_else(|| Some(Instant::now())));
        Ok((control, Output::Pipes { stdout: Some(stdout), stderr: Some(stderr) }, receiver))
    }
}

fn output_pipe() -> std::io::Result<(AsyncFd<OwnedFd>, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((register(ours)?, theirs))
}

pub(super) fn killed() -> Reaped {
    Reaped { exit: Exit::Signal(libc::SIGKILL), usage: ResourceUsage::UNKNOWN }
}

/// A process and all its descendants.
pub(super) fn family(pid: i32) -> Vec<i32> {
    let mut all = descendants(pid);
    all.insert(0, pid);
    all
}

/// Signals a process and all its descendants.
pub(super) fn signal_family(pid: i32, signal: i32) -> usize {
    let all = family(pid);
    for &one in &all {
        // SAFETY: plain numbers; one that has exited meanwhile is no error.
        unsafe { libc::kill(one, signal) };
    }
    all.len()
}

/// Kills a process and all its descendants. Stopped processes cannot fork meanwhile; one that still escapes
/// is reparented to the server and killed there.
pub(super) fn kill_family(pid: i32) {
    let mut stopped = 0;
    for _ in 0..8 {
        let now = signal_family(pid, libc::SIGSTOP);
        if now == stopped {
            break;
        }
        stopped = now;
    }
    signal_family(pid, libc::SIGKILL);
}
