//! Reaping: the agent is the first process of its pid namespace, so every orphan ends up here.
//! `SIGCHLD` comes as readable bytes, not as a handler.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use isle_linux::sys::check;
use isle_wire::Exit;
use tokio::io::unix::AsyncFd;

use crate::runs::Reaped;
use crate::watched::watch;
use crate::serve::Shared;

pub(crate) struct Reaper {
    signals: AsyncFd<OwnedFd>,
}

impl Reaper {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain data; the calls fill and read it.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is valid for the four calls; blocking a signal in the only thread is what signalfd needs.
        let descriptor = unsafe {
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGCHLD);
            check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()).into())?;
            check(libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC).into())?
        };
        // SAFETY: a fresh descriptor nobody else owns.
        let descriptor = unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).unwrap_or(-1)) };
        Ok(Self { signals: watch(descriptor)? })
    }

    pub(crate) async fn run(self, agent: Shared) {
        let mut buffer = [0u8; 1024];
        loop {
            let Ok(mut ready) = self.signals.readable().await else { return };
            while rustix::io::read(self.signals.get_ref(), &mut buffer).is_ok() {}
            ready.clear_ready();
            collect(&agent);
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
        if let Some(run) = agent.runs.by_pid(pid) {
            run.state.borrow_mut().exit = Some(reaped(status, &usage));
            run.changed.notify_waiters();
        }
    }
}

fn reaped(status: i32, usage: &libc::rusage) -> Reaped {
    let exit = if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Reaped {
        exit,
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
        peak_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    }
}
