//! Reaping: the agent is the first process of its pid namespace or adopts orphans by its own wish,
//! so every one of them ends up here.
//! `SIGCHLD` comes as readable bytes, not as a handler.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use isle_linux::sys::check;
use isle_wire::Exit;
use tokio::io::unix::AsyncFd;

use crate::runs::Reaped;
use crate::serve::{self, Shared};
use crate::spent::Spent;
use crate::watched::watch;
use crate::{place, tree};

pub(crate) struct Reaper {
    signals: AsyncFd<OwnedFd>,
}

/// Blocks signals and makes them readable.
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
    // SAFETY: a fresh descriptor nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).unwrap_or(-1)) })
}

/// The numbers of the signals read from such a descriptor.
pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = i32> {
    bytes
        .chunks_exact(size_of::<libc::signalfd_siginfo>())
        .filter_map(|record| record.first_chunk::<4>().map(|number| i32::from_ne_bytes(*number)))
}

impl Reaper {
    pub(crate) fn new() -> io::Result<Self> {
        // The first process of a pid namespace cannot be asked to end; one among the host's can.
        let signals: &[i32] =
            if place::private().is_some() { &[libc::SIGCHLD, libc::SIGTERM] } else { &[libc::SIGCHLD] };
        Ok(Self { signals: watch(signal_descriptor(signals)?)? })
    }

    pub(crate) async fn run(self, agent: Shared) {
        let mut buffer = [0u8; 1024];
        loop {
            let Ok(mut ready) = self.signals.readable().await else { return };
            let mut asked_to_end = false;
            while let Ok(length) = rustix::io::read(self.signals.get_ref(), &mut buffer) {
                asked_to_end |= numbers(&buffer[..length]).any(|number| number == libc::SIGTERM);
            }
            ready.clear_ready();
            collect(&agent);
            if asked_to_end {
                tokio::task::spawn_local(serve::leave(agent.clone()));
            }
        }
    }
}

/// Takes every ended child; those that are nobody's first process were orphans.
fn collect(agent: &Shared) {
    loop {
        let mut status = 0;
        // SAFETY: plain data.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for the call.
        let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::__WALL, &raw mut usage) };
        if pid <= 0 {
            return;
        }
        match agent.runs.by_pid(pid) {
            Some(run) => tree::note_end(agent, &run, reaped(status, &usage)),
            None => tree::end_strangers(agent),
        }
    }
}

/// How a process ended, from what `wait` says.
pub(crate) fn exit_of(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}

pub(crate) fn reaped(status: i32, usage: &libc::rusage) -> Reaped {
    Reaped { exit: exit_of(status), spent: Spent::of_ended(usage) }
}
