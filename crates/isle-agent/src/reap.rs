//! Reaping: the agent is PID 1 of its PID namespace or a subreaper, so all orphans are reparented to it.
//! `SIGCHLD` is read from a signalfd.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use isle_setup::sys::check;
use isle_wire::Exit;
use tokio::io::unix::AsyncFd;

use crate::async_fd::register;
use crate::helper_process;
use crate::processes::{self, ProcessFinder};
use crate::resource_usage::ResourceUsage;
use crate::run::Reaped;
use crate::serve::{self, Shared};
use crate::spawn::starting;

pub(crate) struct Reaper {
    signals: AsyncFd<OwnedFd>,
}

/// Blocks signals and opens a signalfd for them.
pub(crate) fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: plain data; the calls fill and read it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for all calls; blocking signals in the only thread is what signalfd needs.
    let descriptor = unsafe {
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()).into())?;
        check(libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC).into())?
    };
    // SAFETY: a fresh descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).unwrap_or(-1)) })
}

/// The numbers of signals read from a signalfd.
pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = i32> {
    bytes
        .chunks_exact(size_of::<libc::signalfd_siginfo>())
        .filter_map(|record| record.first_chunk::<4>().map(|number| i32::from_ne_bytes(*number)))
}

impl Reaper {
    pub(crate) fn new(finder: &ProcessFinder) -> io::Result<Self> {
        // SIGTERM is ignored by PID 1 of a PID namespace; it stops an agent among other processes.
        let signals: &[i32] =
            if finder.owns_all_processes() { &[libc::SIGCHLD] } else { &[libc::SIGCHLD, libc::SIGTERM] };
        Ok(Self { signals: register(signal_descriptor(signals)?)? })
    }

    pub(crate) async fn run(self, agent: Shared) {
        let mut buffer = [0u8; 1024];
        loop {
            let Ok(mut ready) = self.signals.readable().await else { return };
            let mut terminated = false;
            while let Ok(length) = rustix::io::read(self.signals.get_ref(), &mut buffer) {
                terminated |= numbers(&buffer[..length]).any(|number| number == libc::SIGTERM);
            }
            ready.clear_ready();
            reap_all(&agent);
            if terminated {
                tokio::task::spawn_local(serve::exit(agent.clone()));
            }
        }
    }
}

/// Reaps every exited child; those that are not the first process of a run were orphans.
fn reap_all(agent: &Shared) {
    loop {
        let mut status = 0;
        // SAFETY: plain data.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for the call.
        let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::__WALL, &raw mut usage) };
        if pid <= 0 {
            return;
        }
        helper_process::exited(pid);
        match agent.runs.by_pid(pid) {
            Some(run) => processes::first_process_exited(agent, &run, reaped(status, &usage)),
            None if starting::exited(pid, reaped(status, &usage)) => {}
            None => processes::kill_orphans(agent),
        }
    }
}

/// How a process exited, from its wait status.
pub(crate) fn exit_of(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}

pub(crate) fn reaped(status: i32, usage: &libc::rusage) -> Reaped {
    Reaped { exit: exit_of(status), usage: ResourceUsage::of_exited(usage) }
}
