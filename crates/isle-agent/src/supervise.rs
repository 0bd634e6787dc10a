//! A run without namespaces of its own: a small process between the agent and the program, its
//! supervisor. Every orphan of the run comes to it (it is a subreaper), its signals reach that run
//! and nothing else (a Landlock domain of its own), so ending a run is one signal to everybody in
//! reach, and it ends the run even when the agent is gone.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use isle_linux::setup::landlock;
use isle_linux::sys::{check, prctl};
use minicbor::{Decode, Encode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::family::{descendants, has_no_children, own_pid};
use crate::reap::{exit_of, numbers, signal_descriptor};
use crate::runs::Reaped;
use crate::spent::Spent;

/// From the agent.
#[derive(Debug, Clone, Copy, Encode, Decode)]
enum Order {
    /// End every process.
    #[n(0)]
    End,
    /// Signal every process.
    #[n(1)]
    SignalAll(#[n(0)] i32),
    /// Signal a process group, the program's own when 0.
    #[n(2)]
    SignalGroup(#[n(0)] i32, #[n(1)] i32),
}

/// To the agent.
#[derive(Debug, Clone, Copy, Encode, Decode)]
enum Report {
    #[n(0)]
    Started,
    /// At which step of its start the program failed, and the error number.
    #[n(1)]
    NotStarted(#[n(0)] i32, #[n(1)] i32),
    /// Everything is over.
    #[n(2)]
    Ended(#[n(0)] Ending),
}

/// How a run ended.
#[derive(Debug, Clone, Copy, Encode, Decode)]
#[cbor(map)]
struct Ending {
    /// As `wait` gives it.
    #[n(0)]
    status: i32,
    #[n(1)]
    spent: Spent,
    /// What those took that the program did not wait for.
    #[n(2)]
    others: Spent,
    /// Processes that had outlived the program.
    #[n(3)]
    leftovers: u32,
}

/// More than any message needs.
const LARGEST: usize = 256;

/// The agent's handle on a supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor {
    socket: OwnedFd,
}

/// What the agent learns when a supervisor has gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Farewell {
    pub(crate) reaped: Reaped,
    pub(crate) others: Spent,
    pub(crate) leftovers: u32,
}

/// Why a program did not start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotStarted {
    pub(crate) step: i32,
    pub(crate) errno: i32,
}

/// Forks a supervisor that starts a program by `start` (which returns the program's pid, or at which
/// step it failed) with nothing open but `keep`. Returns when the program runs.
pub(crate) fn supervise(
    keep: &[RawFd],
    scope: Option<RawFd>,
    start: impl FnOnce() -> Result<i32, NotStarted>,
) -> io::Result<Result<(i32, Supervisor), NotStarted>> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let agent = own_pid();
    // SAFETY: this process has one thread; the child runs `oversee` only and never returns from it.
    let pid = check(unsafe { libc::fork() }.into())?;
    if pid == 0 {
        oversee(theirs, keep, scope, agent, start);
    }
    drop(theirs);
    let pid = i32::try_from(pid).unwrap_or(-1);
    let failure = match receive(&ours, RecvFlags::empty()) {
        Ok(Report::Started) => return Ok(Ok((pid, Supervisor { socket: ours }))),
        Ok(Report::NotStarted(step, errno)) => Ok(NotStarted { step, errno }),
        Ok(Report::Ended(_)) => Err(io::Error::from_raw_os_error(libc::EPROTO)),
        // It was killed before it could say anything.
        Err(_) => Err(io::Error::from_raw_os_error(libc::ECHILD)),
    };
    // SAFETY: waits for a child of ours that is about to be gone; the reaper must not find it.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    failure.map(Err)
}

impl Supervisor {
    /// Asks for the end of the run.
    pub(crate) fn end(&self) {
        self.order(Order::End);
    }

    /// Signals every process of the run.
    pub(crate) fn signal_all(&self, signal: i32) {
        self.order(Order::SignalAll(signal));
    }

    /// Signals a process group of the run, the program's own without one.
    pub(crate) fn signal_group(&self, group: Option<i32>, signal: i32) {
        self.order(Order::SignalGroup(group.unwrap_or(0), signal));
    }

    fn order(&self, order: Order) {
        // A supervisor that is gone has ended its run already.
        send(&self.socket, &order, SendFlags::DONTWAIT).ok();
    }

    /// Its last words, once it has been reaped; `None` when it was killed before it could say them.
    pub(crate) fn farewell(&self) -> Option<Farewell> {
        match receive(&self.socket, RecvFlags::DONTWAIT) {
            Ok(Report::Ended(Ending { status, spent, others, leftovers })) => {
                Some(Farewell { reaped: Reaped { exit: exit_of(status), spent }, others, leftovers })
            }
            Ok(Report::Started | Report::NotStarted(..)) | Err(_) => None,
        }
    }
}

fn send(socket: &OwnedFd, message: &impl Encode<()>, flags: SendFlags) -> io::Result<()> {
    let packet = minicbor::to_vec(message).unwrap_or_default();
    rustix::net::send(socket, &packet, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive<T: for<'b> Decode<'b, ()>>(socket: &OwnedFd, flags: RecvFlags) -> io::Result<T> {
    let mut buffer = [0u8; LARGEST];
    loop {
        match rustix::net::recv(socket, &mut buffer, flags) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => return minicbor::decode(&buffer[..length]).map_err(io::Error::other),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The supervisor's whole life.
fn oversee(
    socket: OwnedFd,
    keep: &[RawFd],
    scope: Option<RawFd>,
    agent: i32,
    start: impl FnOnce() -> Result<i32, NotStarted>,
) -> ! {
    let leave = |status: i32| -> ! {
        // SAFETY: ends this process; nothing of the agent's may run here.
        unsafe { libc::_exit(status) }
    };
    close_all_but(keep.iter().copied().chain(scope).chain([socket.as_raw_fd()]));
    let Ok((signals, reach)) = prepare(scope, agent) else { leave(3) };
    let program = match start() {
        Ok(pid) => pid,
        Err(failure) => {
            send(&socket, &Report::NotStarted(failure.step, failure.errno), SendFlags::empty()).ok();
            leave(0)
        }
    };
    // The program has its own copies of what was kept for it.
    close_all_but([socket.as_raw_fd(), signals.as_raw_fd()]);
    let ending = match send(&socket, &Report::Started, SendFlags::empty()) {
        Ok(()) => watch(&socket, &signals, reach, program),
        Err(_) => end_all(reach, program),
    };
    send(&socket, &Report::Ended(ending), SendFlags::empty()).ok();
    leave(0)
}

/// Whom this process's signals reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The run and nobody else.
    Run,
    /// Others of the same user too.
    Host,
}

/// Adopts orphans, hears of the agent's death, and takes on the run's scope.
fn prepare(scope: Option<RawFd>, agent: i32) -> io::Result<(OwnedFd, Reach)> {
    let signals = signal_descriptor(&[libc::SIGCHLD, libc::SIGTERM])?;
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0)?;
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM.unsigned_abs().into(), 0)?;
    if rustix::process::getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != agent) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let Some(scope) = scope else { return Ok((signals, Reach::Host)) };
    landlock::enforce(scope)?;
    // Seen, not assumed: "everybody in reach" is going to be killed.
    // SAFETY: plain numbers; signal 0 only asks.
    match check(unsafe { libc::kill(agent, 0) }.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok((signals, Reach::Run)),
        Ok(_) | Err(_) => Ok((signals, Reach::Host)),
    }
}

/// Closes every descriptor but the first three and `keep`.
fn close_all_but(keep: impl IntoIterator<Item = RawFd>) {
    let mut kept: Vec<u32> = keep.into_iter().filter_map(|one| u32::try_from(one).ok()).collect();
    kept.sort_unstable();
    let mut next = 3u32;
    for one in kept.into_iter().chain([u32::MAX]) {
        if one > next {
            // SAFETY: closes numbers nothing here will use again; their owners live in frames of the
            // agent this process never returns to.
            unsafe { libc::syscall(libc::SYS_close_range, next, one - 1, 0) };
        }
        next = next.max(one.saturating_add(1));
    }
}

/// Waits for the program's end, an order or the agent's death; then ends whoever is left.
fn watch(socket: &OwnedFd, signals: &OwnedFd, reach: Reach, program: i32) -> Ending {
    let mut buffer = [0u8; 1024];
    // Of orphans that ended before the program did.
    let mut strays = Spent::NOTHING;
    let with = |ending: Ending, strays: Spent| Ending { others: ending.others.and(strays), ..ending };
    loop {
        let mut ready = [PollFd::new(socket, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        if poll(&mut ready, None).is_err() {
            continue;
        }
        let (ordered, signalled) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
        if signalled {
            while let Ok(length) = rustix::io::read(signals, &mut buffer) {
                if numbers(&buffer[..length]).any(|number| number == libc::SIGTERM) {
                    return with(end_all(reach, program), strays);
                }
            }
            while let Some(ended) = reap_one(libc::WNOHANG) {
                if ended.pid == program {
                    let Ending { others, leftovers, .. } = end_all(reach, program);
                    return with(Ending { others, leftovers, ..ended.ending }, strays);
                }
                strays = strays.and(ended.ending.spent);
            }
        }
        if ordered {
            match receive::<Order>(socket, RecvFlags::DONTWAIT) {
                Ok(Order::End) => {
                    return with(Ending { leftovers: 0, ..end_all(reach, program) }, strays);
                }
                Ok(Order::SignalAll(signal)) => signal_all(reach, signal),
                Ok(Order::SignalGroup(group, signal)) => {
                    let group = if group > 1 { group } else { program };
                    // SAFETY: plain numbers; the program has not been reaped, so its number is its own.
                    unsafe { libc::kill(-group, signal) };
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The agent is gone, or talks nonsense.
                Err(_) => return with(end_all(reach, program), strays),
            }
        }
    }
}

/// An ended child.
struct Ended {
    pid: i32,
    ending: Ending,
}

/// Takes one ended child; `None` when there is none.
fn reap_one(flags: i32) -> Option<Ended> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for the call.
    let pid = unsafe { libc::wait4(-1, &raw mut status, flags | libc::__WALL, usage.as_mut_ptr()) };
    if pid <= 0 {
        return None;
    }
    // SAFETY: zeroed, which is valid, and filled by the kernel.
    let spent = Spent::of_ended(unsafe { usage.assume_init_ref() });
    Some(Ended { pid, ending: Ending { status, spent, others: Spent::NOTHING, leftovers: 0 } })
}

/// Ends everybody and reaps them. The result is the program's end, with how many others were killed.
fn end_all(reach: Reach, program: i32) -> Ending {
    let mut own =
        Ending { status: libc::SIGKILL, spent: Spent::NOTHING, others: Spent::NOTHING, leftovers: 0 };
    let (mut others, mut leftovers) = (Spent::NOTHING, 0);
    let mut note = |ended: Ended| {
        if ended.pid == program {
            own = ended.ending;
            return;
        }
        others = others.and(ended.ending.spent);
        let status = ended.ending.status;
        leftovers += u32::from(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
    };
    match reach {
        Reach::Run => {
            // One sweep under the kernel's own lock: nobody can be forked past it.
            signal_all(reach, libc::SIGKILL);
            while let Some(ended) = reap_one(0) {
                note(ended);
            }
        }
        Reach::Host => {
            while !has_no_children() {
                stop_descendants();
                signal_all(reach, libc::SIGKILL);
                while let Some(ended) = reap_one(libc::WNOHANG) {
                    note(ended);
                }
                // Killed processes need a moment to go.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    Ending { others, leftovers, ..own }
}

/// Stopped processes cannot fork past the killing.
fn stop_descendants() {
    let mut stopped = 0;
    for _ in 0..8 {
        let now = descendants(own_pid()).len();
        if now == stopped {
            return;
        }
        stopped = now;
        signal_all(Reach::Host, libc::SIGSTOP);
    }
}

fn signal_all(reach: Reach, signal: i32) {
    match reach {
        // SAFETY: plain numbers. This process's Landlock domain was seen to confine its signals, so
        // "everybody" is everybody in the run.
        Reach::Run => unsafe {
            libc::kill(-1, signal);
        },
        Reach::Host => {
            for pid in descendants(own_pid()) {
                // SAFETY: plain numbers; descendants are reaped by this process or by each other, and a
                // number is handed out again last.
                unsafe { libc::kill(pid, signal) };
            }
        }
    }
}
