//! The supervisor of a run without a UTS namespace: a small process between the agent and the program. It is
//! the subreaper of the run, so every orphan is reparented to it. It kills the run on request, when the
//! program has exited, and when the agent is gone. With a Landlock domain of its own its signals reach the
//! run and nothing else, so one `kill(-1)` is enough; without one it walks `/proc` (`descendants`).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use isle_setup::landlock;
use isle_setup::sys::{check, prctl};
use minicbor::{Decode, Encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::descendants;
use super::proc_tree::{has_no_children, own_pid};
use crate::close_fds::close_all_but;
use crate::reap::{exit_of, numbers, signal_descriptor};
use crate::resource_usage::ResourceUsage;
use crate::run::Reaped;

/// From the agent to the supervisor.
#[derive(Debug, Clone, Copy, Encode, Decode)]
enum Order {
    /// Kill every process.
    #[n(0)]
    KillAll,
    /// Signal every process.
    #[n(1)]
    SignalAll(#[n(0)] i32),
    /// Signal a process group, the program's own when 0.
    #[n(2)]
    SignalGroup(#[n(0)] i32, #[n(1)] i32),
}

/// From the supervisor to the agent.
#[derive(Debug, Clone, Copy, Encode, Decode)]
enum Report {
    #[n(0)]
    Started,
    /// At which step of its start the program failed, and the error number.
    #[n(1)]
    NotStarted(#[n(0)] i32, #[n(1)] i32),
    /// No process of the run is left.
    #[n(2)]
    Exited(#[n(0)] RunExit),
}

/// How a run exited.
#[derive(Debug, Clone, Copy, Encode, Decode)]
#[cbor(map)]
struct RunExit {
    /// As `wait` gives it.
    #[n(0)]
    status: i32,
    #[n(1)]
    usage: ResourceUsage,
    /// Of the processes that the program did not wait for.
    #[n(2)]
    others: ResourceUsage,
    /// Processes that were killed after the program had exited.
    #[n(3)]
    leftovers: u32,
}

/// Timeout for a supervisor to start its program: longer than that of the program's own start.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// More than any message needs.
const MAX_MESSAGE: usize = 256;

/// The agent's handle on a supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor {
    socket: OwnedFd,
}

/// What a supervisor reports before it exits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunResult {
    pub(crate) reaped: Reaped,
    pub(crate) others: ResourceUsage,
    pub(crate) leftovers: u32,
}

/// Why a program did not start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotStarted {
    pub(crate) step: i32,
    pub(crate) errno: i32,
}

/// Forks a supervisor that starts a program by `start` (which returns the program's PID, or the step that
/// failed) with no descriptors open except `keep`. With `scope` it enters a Landlock domain. Returns when
/// the program was executed.
pub(crate) fn supervise(
    keep: &[RawFd],
    scope: Option<RawFd>,
    start: impl FnOnce() -> Result<i32, NotStarted>,
) -> io::Result<Result<(i32, Supervisor), NotStarted>> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let agent = own_pid();
    // SAFETY: this process has one thread; the child runs `supervisor_main` only and never returns from it.
    let pid = check(unsafe { libc::fork() }.into())?;
    if pid == 0 {
        supervisor_main(theirs, keep, scope, agent, start);
    }
    drop(theirs);
    let pid = i32::try_from(pid).unwrap_or(-1);
    if !is_readable_within(&ours, START_TIMEOUT) {
        // Stopped, or prevented from executing its program.
        // SAFETY: plain numbers; a child that was not reaped yet keeps its PID.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let failure = match receive(&ours, RecvFlags::empty()) {
        Ok(Report::Started) => return Ok(Ok((pid, Supervisor { socket: ours }))),
        Ok(Report::NotStarted(step, errno)) => Ok(NotStarted { step, errno }),
        Ok(Report::Exited(_)) => Err(io::Error::from_raw_os_error(libc::EPROTO)),
        // It was killed before it could report.
        Err(_) => Err(io::Error::from_raw_os_error(libc::ECHILD)),
    };
    // SAFETY: waits for a child that is about to exit; the reaper must not find it.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    failure.map(Err)
}

impl Supervisor {
    /// Kills every process of the run.
    pub(crate) fn kill_all(&self) {
        self.order(Order::KillAll);
    }

    /// Signals every process of the run.
    pub(crate) fn signal_all(&self, signal: i32) {
        self.order(Order::SignalAll(signal));
    }

    /// Signals a process group of the run: the given one, or the program's own.
    pub(crate) fn signal_group(&self, group: Option<i32>, signal: i32) {
        self.order(Order::SignalGroup(group.unwrap_or(0), signal));
    }

    fn order(&self, order: Order) {
        // A supervisor that has exited has killed its run already.
        send(&self.socket, &order, SendFlags::DONTWAIT).ok();
    }

    /// Its report, once it has been reaped; `None` when it was killed before it could send one.
    pub(crate) fn result(&self) -> Option<RunResult> {
        match receive(&self.socket, RecvFlags::DONTWAIT) {
            Ok(Report::Exited(RunExit { status, usage, others, leftovers })) => {
                Some(RunResult { reaped: Reaped { exit: exit_of(status), usage }, others, leftovers })
            }
            Ok(Report::Started | Report::NotStarted(..)) | Err(_) => None,
        }
    }
}

/// Whether the socket becomes readable in time.
fn is_readable_within(socket: &OwnedFd, within: Duration) -> bool {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.is_ok_and(|count| count > 0),
        }
    }
}

fn send(socket: &OwnedFd, message: &impl Encode<()>, flags: SendFlags) -> io::Result<()> {
    let packet = minicbor::to_vec(message).unwrap_or_default();
    rustix::net::send(socket, &packet, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive<T: for<'b> Decode<'b, ()>>(socket: &OwnedFd, flags: RecvFlags) -> io::Result<T> {
    let mut buffer = [0u8; MAX_MESSAGE];
    loop {
        match rustix::net::recv(socket, &mut buffer, flags) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => return minicbor::decode(&buffer[..length]).map_err(io::Error::other),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The main function of the supervisor process.
fn supervisor_main(
    socket: OwnedFd,
    keep: &[RawFd],
    scope: Option<RawFd>,
    agent: i32,
    start: impl FnOnce() -> Result<i32, NotStarted>,
) -> ! {
    let leave = |status: i32| -> ! {
        // SAFETY: exits at once; no destructor of the agent may run here.
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
    let exit = match send(&socket, &Report::Started, SendFlags::empty()) {
        Ok(()) => supervise_program(&socket, &signals, reach, program),
        Err(_) => kill_and_reap(reach, program),
    };
    send(&socket, &Report::Exited(exit), SendFlags::empty()).ok();
    leave(0)
}

/// How the supervisor reaches the processes of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Landlock confines its signals to the run: `kill(-1)` signals all of it.
    Scope,
    /// Its signals also reach other processes of the same user: descendants are signalled one by one.
    Descendants,
}

/// Becomes a subreaper, subscribes to the agent's death, and enters the run's Landlock domain.
fn prepare(scope: Option<RawFd>, agent: i32) -> io::Result<(OwnedFd, Reach)> {
    let signals = signal_descriptor(&[libc::SIGCHLD, libc::SIGTERM])?;
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0)?;
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM.unsigned_abs().into(), 0)?;
    if rustix::process::getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != agent) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let Some(scope) = scope else { return Ok((signals, Reach::Descendants)) };
    landlock::enforce(scope)?;
    // Verified, not assumed: `kill(-1)` is going to be used.
    // SAFETY: plain numbers; signal 0 only checks.
    match check(unsafe { libc::kill(agent, 0) }.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok((signals, Reach::Scope)),
        Ok(_) | Err(_) => Ok((signals, Reach::Descendants)),
    }
}

/// Waits until the program exits, the agent asks for the kill, or the agent is gone; then kills what is left.
fn supervise_program(socket: &OwnedFd, signals: &OwnedFd, reach: Reach, program: i32) -> RunExit {
    let mut buffer = [0u8; 1024];
    // Of orphans that exited before the program did.
    let mut orphans = ResourceUsage::ZERO;
    let with = |exit: RunExit, orphans: ResourceUsage| RunExit { others: exit.others.and(orphans), ..exit };
    loop {
        let mut ready = [PollFd::new(socket, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        if poll(&mut ready, None).is_err() {
            continue;
        }
        let (ordered, signalled) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
        if signalled {
            while let Ok(length) = rustix::io::read(signals, &mut buffer) {
                if numbers(&buffer[..length]).any(|number| number == libc::SIGTERM) {
                    return with(kill_and_reap(reach, program), orphans);
                }
            }
            while let Some(exited) = reap_one(libc::WNOHANG) {
                if exited.pid == program {
                    let RunExit { others, leftovers, .. } = kill_and_reap(reach, program);
                    return with(RunExit { others, leftovers, ..exited.exit }, orphans);
                }
                orphans = orphans.and(exited.exit.usage);
            }
        }
        if ordered {
            match receive::<Order>(socket, RecvFlags::DONTWAIT) {
                Ok(Order::KillAll) => {
                    return with(RunExit { leftovers: 0, ..kill_and_reap(reach, program) }, orphans);
                }
                Ok(Order::SignalAll(signal)) => signal_all(reach, signal),
                Ok(Order::SignalGroup(group, signal)) => {
                    let group = if group > 1 { group } else { program };
                    // SAFETY: plain numbers; the program has not been reaped, so it keeps its PID.
                    unsafe { libc::kill(-group, signal) };
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The agent is gone, or violates the protocol.
                Err(_) => return with(kill_and_reap(reach, program), orphans),
            }
        }
    }
}

/// A child that has exited.
struct Exited {
    pid: i32,
    exit: RunExit,
}

/// Reaps one child; `None` when there is none to reap.
fn reap_one(flags: i32) -> Option<Exited> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for the call.
    let pid = unsafe { libc::wait4(-1, &raw mut status, flags | libc::__WALL, usage.as_mut_ptr()) };
    if pid <= 0 {
        return None;
    }
    // SAFETY: zeroed, which is valid, and filled by the kernel.
    let usage = ResourceUsage::of_exited(unsafe { usage.assume_init_ref() });
    let exit = RunExit { status, usage, others: ResourceUsage::ZERO, leftovers: 0 };
    Some(Exited { pid, exit })
}

/// Kills every process of the run and reaps them. Returns how the program exited, with how many others were
/// killed.
fn kill_and_reap(reach: Reach, program: i32) -> RunExit {
    let mut own = RunExit {
        status: libc::SIGKILL,
        usage: ResourceUsage::ZERO,
        others: ResourceUsage::ZERO,
        leftovers: 0,
    };
    let (mut others, mut leftovers) = (ResourceUsage::ZERO, 0);
    let mut note = |exited: Exited| {
        if exited.pid == program {
            own = exited.exit;
            return;
        }
        others = others.and(exited.exit.usage);
        let status = exited.exit.status;
        leftovers += u32::from(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
    };
    match reach {
        Reach::Scope => {
            // One pass under the kernel's lock: no process can be forked past it.
            signal_all(reach, libc::SIGKILL);
            while let Some(exited) = reap_one(0) {
                note(exited);
            }
        }
        Reach::Descendants => descendants::kill_all(|| {
            while let Some(exited) = reap_one(libc::WNOHANG) {
                note(exited);
            }
            !has_no_children()
        }),
    }
    RunExit { others, leftovers, ..own }
}

fn signal_all(reach: Reach, signal: i32) {
    match reach {
        // SAFETY: plain numbers. This process's Landlock domain was verified to confine its signals to the
        // run.
        Reach::Scope => unsafe {
            libc::kill(-1, signal);
        },
        Reach::Descendants => descendants::signal_all(signal),
    }
}
