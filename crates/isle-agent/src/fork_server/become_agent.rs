//! In the cloned child: from the request's descriptors to a serving agent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use isle_setup::request::{MakeRequest, Volume};
use isle_setup::seccomp::Listener;
use isle_setup::sys::{Doing, Step, StepError};
use isle_wire::{Missing, Preamble, SetupFailure};

use crate::link::Link;
use crate::mode::Mode;
use crate::process_title;
use crate::serve::{self, Start};

/// The descriptors of a request.
pub(super) struct Parts {
    pub(super) link: OwnedFd,
    pub(super) listener: Option<OwnedFd>,
    pub(super) cgroups: Vec<OwnedFd>,
    pub(super) loop_device: Option<OwnedFd>,
}

impl Parts {
    pub(super) fn split(request: &MakeRequest, descriptors: Vec<OwnedFd>) -> Step<Self> {
        let mut rest = descriptors.into_iter();
        let mut take = |what: &str| {
            rest.next().ok_or(io::Error::from_raw_os_error(libc::EBADF)).doing(|| format!("take the {what}"))
        };
        let link = take("stream")?;
        let listener = if request.has_listener { Some(take("listener")?) } else { None };
        let mut cgroups: Vec<OwnedFd> = rest.collect();
        let loop_device = if matches!(request.volume, Volume::LoopDevice) { cgroups.pop() } else { None };
        Ok(Self { link, listener, cgroups, loop_device })
    }

    /// The cgroup v2 to clone into: it comes as a directory, those of v1 as files.
    pub(super) fn clone_cgroup(&self) -> Option<BorrowedFd<'_>> {
        let [only] = &self.cgroups[..] else { return None };
        let stat = rustix::fs::fstat(only).ok()?;
        let is_directory =
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
        is_directory.then(|| only.as_fd())
    }
}

/// Enters the cgroups it was not cloned into. A process that moves only itself, by writing to `tasks`, avoids
/// the global lock that moving another process takes.
pub(super) fn join_cgroups(parts: &Parts) {
    if parts.clone_cgroup().is_some() {
        return;
    }
    for cgroup in &parts.cgroups {
        if let Err(error) = rustix::io::write(cgroup, b"0").doing(|| "join a cgroup".into()) {
            give_up(&parts.link, error);
        }
    }
}

/// Reports on the link why there is no sandbox, and exits.
fn give_up(link: &OwnedFd, error: StepError) -> ! {
    let preamble = Preamble::Failed(SetupFailure { errno: error.errno(), step: error.step });
    // The socket is empty, so the whole preamble fits. A daemon that is gone needs no report.
    rustix::io::write(link, &preamble.to_bytes()).ok();
    exit(4)
}

/// What a set-up produces.
pub(super) struct SetUp {
    pub(super) mode: Mode,
    /// Where denied system calls are reported.
    pub(super) notifications: Option<Listener>,
    /// What could not be set up: key and reason.
    pub(super) missing: Vec<(&'static str, String)>,
}

/// Sets up by `enter`, serves, never returns.
pub(super) fn become_agent(
    request: &MakeRequest,
    link: OwnedFd,
    listener: Option<OwnedFd>,
    go: OwnedFd,
    enter: impl FnOnce(OwnedFd) -> Step<SetUp>,
) -> ! {
    let (link, listener, go) = keep_only(link, listener, go);
    process_title::set(&format!("isle-agent {}", request.layer));
    if let Some(listener) = &listener {
        // Listening here and not in the daemon makes this process the peer that a later daemon sees.
        if rustix::net::listen(listener, 16).is_err() {
            exit(3);
        }
    }
    match enter(go) {
        Ok(SetUp { mode, notifications, missing }) => {
            let missing =
                missing.into_iter().map(|(key, reason)| Missing { key: key.to_owned(), reason }).collect();
            let links = [Link::Socket(link)].into_iter().chain(listener.map(Link::Listener)).collect();
            serve::serve(Start { mode, links, notifications, missing });
            exit(0)
        }
        Err(error) => give_up(&link, error),
    }
}

/// Closes every descriptor except those given, which are moved to fixed numbers.
pub(super) fn keep_only(
    link: OwnedFd,
    listener: Option<OwnedFd>,
    go: OwnedFd,
) -> (OwnedFd, Option<OwnedFd>, OwnedFd) {
    const FIRST: i32 = 20;
    // Duplicated above the target numbers first, so that moving one does not overwrite another.
    let move_up = |descriptor: OwnedFd| {
        // SAFETY: duplicates a descriptor we own; the old number is closed with the others below.
        unsafe { libc::fcntl(descriptor.into_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST + 3) }
    };
    let (link, go, listener) = (move_up(link), move_up(go), listener.map(move_up));
    let move_to = |descriptor: i32, number: i32| {
        // SAFETY: the number is owned by the result alone: what had it before belongs to stack frames of the
        // fork server, which this process never returns to.
        unsafe {
            libc::dup3(descriptor, number, libc::O_CLOEXEC);
            OwnedFd::from_raw_fd(number)
        }
    };
    let link = move_to(link, FIRST);
    let go = move_to(go, FIRST + 1);
    let listener = listener.map(|listener| move_to(listener, FIRST + 2));
    // SAFETY: closes everything else; the fork server's own descriptors are of no use here. The
    // control socket's OwnedFd is in the parent's frame, which this process never returns to.
    unsafe {
        libc::close_range(3, FIRST.unsigned_abs() - 1, 0);
        libc::close_range(FIRST.unsigned_abs() + 3, u32::MAX, 0);
        libc::dup2(0, 1);
        libc::dup2(0, 2);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
    (link, listener, go)
}

/// Exits at once.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: exits; as PID 1 of a PID namespace it takes every process with it.
    unsafe { libc::_exit(status) }
}
