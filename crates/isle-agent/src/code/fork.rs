//! Calls without a context in Python: each is a child of a fork server, which inherits nothing of any
//! other call. All children of a server carry the server's tag, so a call is known by descent instead:
//! its first process adopts what it orphans, and what is left when it ends falls to the server. There
//! a child that is neither a call nor the next one in waiting has no business being alive.

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

use super::control::{Control, Message, Taken, call, pair};
use super::{fail, outputs};
use crate::family::{children, descendants};
use crate::reap::exit_of;
use crate::run::{Output, drain, expired, finish, keep};
use crate::runs::{Reaped, Run};
use crate::serve::Shared;
use crate::spent::{self, Spent};
use crate::tree::{self, Lodging};
use crate::watched::watch;

/// The exit status of a server that cannot do its work here.
const UNABLE: i32 = 3;

/// Where a call that was handed to a server ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handed {
    /// A child has it.
    Taken,
    /// The server never took one and never will: nothing of the call was seen.
    Refused,
    /// The server died.
    Lost,
}

/// A call that was handed over and not taken yet.
type Waiting = (Rc<Run>, oneshot::Sender<Handed>);

/// A fork server.
pub(super) struct Server {
    pub(super) process: Rc<Run>,
    control: Control,
    /// Its own number, which in tier `process` is not its supervisor's.
    pid: Flag<i32>,
    /// The child in waiting, and whether another is being made.
    idle: Flag<i32>,
    making: Flag<bool>,
    calls: RefCell<HashMap<i32, Rc<Run>>>,
    waiting: RefCell<HashMap<i64, Waiting>>,
    next: Flag<i64>,
    gone: Flag<bool>,
    pub(super) used: Flag<Instant>,
}

impl Server {
    pub(super) fn new(agent: &Shared, process: Rc<Run>, control: Control, output: Output) -> Rc<Self> {
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
            used: Flag::new(Instant::now()),
        });
        tokio::task::spawn_local(server.clone().keep(agent.clone(), output));
        server
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.get() || self.process.state.borrow().exit.is_some()
    }

    /// Whether nothing runs in it.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.borrow().is_empty() && self.waiting.borrow().is_empty()
    }

    /// The call whose first process has this number.
    pub(super) fn call_of(&self, pid: i32) -> Option<Rc<Run>> {
        self.calls.borrow().get(&pid).cloned()
    }

    async fn keep(self: Rc<Self>, agent: Shared, mut output: Output) {
        let mut ended = VecDeque::new();
        let mut speaking = true;
        while self.process.state.borrow().exit.is_none() {
            let mut process = pin!(self.process.changed.notified());
            process.as_mut().enable();
            if self.process.state.borrow().exit.is_some() {
                break;
            }
            tokio::select! {
                () = process => {}
                // Nobody prints there but the server in distress.
                _ = output.read(), if output.is_open() => {}
                message = self.control.next(), if speaking => match message {
                    Some(message) => self.told(&agent, &message, &mut ended),
                    None => speaking = false,
                },
            }
            if !ended.is_empty() {
                self.end_strangers(&agent, &mut ended).await;
                for (pid, reaped) in ended.drain(..) {
                    self.over(pid, reaped);
                }
            }
        }
        self.wind_up(&agent, ended).await;
    }

    fn told(&self, agent: &Shared, message: &Message, ended: &mut VecDeque<(i32, Reaped)>) {
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
                let spent = Spent {
                    cpu_us: positive(2),
                    peak_rss_kib: positive(3),
                    transferred: Some(Transferred {
                        read_bytes: spent::blocks(number(4)),
                        written_bytes: spent::blocks(number(5)),
                    }),
                };
                if self.idle.get() == pid(0) {
                    self.idle.set(0);
                }
                ended.push_back((pid(0), Reaped { exit: exit_of(status), spent }));
            }
            _ => {}
        }
    }

    fn taken(&self, agent: &Shared, number: i64, pid: i32) {
        let handed = self.waiting.borrow_mut().remove(&number);
        // Without one nobody wanted the call any more, and the child learns that from its socket. It
        // counts as a call of nobody until it is gone.
        let Some((run, handed)) = handed else {
            return self.idle.set(pid);
        };
        run.tree.lodge(Lodging::Forked(pid));
        self.calls.borrow_mut().insert(pid, run.clone());
        handed.send(Handed::Taken).ok();
        if run.state.borrow().killed.is_some() {
            let agent = agent.clone();
            tokio::task::spawn_local(async move { tree::end(&agent, &run).await });
        }
    }

    fn over(&self, pid: i32, reaped: Reaped) {
        let Some(run) = self.calls.borrow_mut().remove(&pid) else { return };
        run.state.borrow_mut().exit = Some(reaped);
        run.changed.notify_waiters();
    }

    /// Ends children of the server that are nobody's.
    async fn end_strangers(&self, agent: &Shared, ended: &mut VecDeque<(i32, Reaped)>) {
        loop {
            let listed = children(self.pid.get());
            // Every child that is listed was announced before it was made: hear that first.
            while let Some(message) = self.control.next_now() {
                self.told(agent, &message, ended);
            }
            while self.making.get() {
                let Some(message) = self.control.next().await else { return };
                self.told(agent, &message, ended);
            }
            let known = |pid: i32| {
                pid == self.idle.get()
                    || self.calls.borrow().contains_key(&pid)
                    || ended.iter().any(|&(other, _)| other == pid)
            };
            let strangers: Vec<i32> = listed.into_iter().filter(|&pid| !known(pid)).collect();
            if strangers.is_empty() {
                return;
            }
            for pid in strangers {
                end_family(pid);
            }
            // Killed processes need a moment to go; the server reaps them meanwhile.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn wind_up(&self, agent: &Shared, ended: VecDeque<(i32, Reaped)>) {
        self.gone.set(true);
        tree::end_leftovers(agent, &self.process).await;
        for (pid, reaped) in ended {
            self.over(pid, reaped);
        }
        let mut rest = VecDeque::new();
        while let Some(message) = self.control.next_now() {
            self.told(agent, &message, &mut rest);
        }
        for (pid, reaped) in rest {
            self.over(pid, reaped);
        }
        finish(&self.process, 0);
        agent.runs.remove(&self.process.id);
        let unable = self.process.state.borrow().exit.is_some_and(|reaped| reaped.exit == Exit::Code(UNABLE));
        let handed = if unable && self.pid.get() == 0 { Handed::Refused } else { Handed::Lost };
        for (_, (_, sender)) in self.waiting.take() {
            sender.send(handed).ok();
        }
        let calls: Vec<i32> = self.calls.borrow().keys().copied().collect();
        for pid in calls {
            self.over(pid, killed());
        }
    }

    /// Runs one call to its end. `Refused` when it has to run elsewhere.
    pub(super) async fn run(
        &self,
        run: &Rc<Run>,
        request: &CodeRequest,
        stdin: Option<OwnedFd>,
        deadline: Option<Deadline>,
    ) -> Handed {
        self.used.set(Instant::now());
        let (control, mut output, handed) = match self.hand_over(run, stdin) {
            Ok(all) => all,
            Err(error) => {
                fail(run, crate::files::failure(&error, "start the interpreter"));
                return Handed::Taken;
            }
        };
        let mut handed = pin!(handed);
        let words = call(request, Taken::Everything);
        let mut sending = pin!(control.send(&words));
        let (mut sent, mut taken, mut speaking, mut deadline) = (false, false, true, deadline);
        loop {
            let mut changed = pin!(run.changed.notified());
            changed.as_mut().enable();
            let (exited, full, unwanted) = {
                let state = run.state.borrow();
                (state.exit.is_some(), state.fresh.is_full(), state.killed.is_some() && !taken)
            };
            if unwanted {
                // Not taken yet: whoever takes it finds the socket closed.
                self.waiting.borrow_mut().retain(|_, (waiting, _)| !Rc::ptr_eq(waiting, run));
                run.state.borrow_mut().exit = Some(killed());
                finish(run, 0);
                return Handed::Taken;
            }
            if exited {
                break;
            }
            tokio::select! {
                () = changed => {}
                answer = &mut handed, if !taken => match answer.unwrap_or(Handed::Lost) {
                    Handed::Taken => taken = true,
                    Handed::Refused => return Handed::Refused,
                    Handed::Lost => run.state.borrow_mut().exit = Some(killed()),
                },
                _ = &mut sending, if !sent => sent = true,
                chunk = output.read(), if output.is_open() && !full => keep(run, chunk),
                message = control.next(), if speaking => match message {
                    None => {
                        speaking = false;
                        // A child that died before it could say that it had the call.
                        if !taken && run.tree.lodging().is_some_and(|lodging| matches!(lodging, Lodging::Waiting)) {
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
                    run.state.borrow_mut().killed = Some(true);
                    if let Some(Lodging::Forked(pid)) = run.tree.lodging() {
                        end_family(pid);
                    }
                }
            }
        }
        while let Some(message) = control.next_now() {
            if message.kind == b'R' {
                run.state.borrow_mut().report = Some(message.payload);
            }
        }
        while let Some(chunk) = outputs::read_now(&mut output) {
            keep(run, Some(chunk));
        }
        drain(run, &mut output).await;
        self.used.set(Instant::now());
        let leftovers = run.state.borrow().leftovers;
        finish(run, leftovers);
        Handed::Taken
    }

    fn hand_over(
        &self,
        run: &Rc<Run>,
        stdin: Option<OwnedFd>,
    ) -> std::io::Result<(Control, Output, oneshot::Receiver<Handed>)> {
        let (control, their_control) = pair()?;
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
        let descriptors = [&their_stdin, &their_stdout, &their_stderr, &their_control];
        if let Err(error) = self.control.hand_over(word.as_bytes(), &descriptors) {
            self.waiting.borrow_mut().remove(&number);
            return Err(error);
        }
        Ok((control, Output::Pipes { stdout: Some(stdout), stderr: Some(stderr) }, receiver))
    }
}

fn output_pipe() -> std::io::Result<(AsyncFd<OwnedFd>, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((watch(ours)?, theirs))
}

pub(super) fn killed() -> Reaped {
    Reaped { exit: Exit::Signal(libc::SIGKILL), spent: Spent::UNKNOWN }
}

/// A process and everybody below it.
pub(super) fn family(pid: i32) -> Vec<i32> {
    let mut all = descendants(pid);
    all.insert(0, pid);
    all
}

/// Signals a process and everybody below it.
pub(super) fn signal_family(pid: i32, signal: i32) -> usize {
    let all = family(pid);
    for &one in &all {
        // SAFETY: plain numbers; one that is gone meanwhile is no error.
        unsafe { libc::kill(one, signal) };
    }
    all.len()
}

/// Kills a process and everybody below it. Stopped processes cannot fork past the killing; whoever
/// still gets away falls to the server, where it is a stranger.
pub(super) fn end_family(pid: i32) {
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
