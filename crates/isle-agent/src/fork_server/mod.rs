//! The fork server: one thread, one socket to the daemon. Each request to make a sandbox is one clone of
//! this small process; nothing is executed and almost nothing is copied. It exits when the daemon
//! disconnects; sandboxes keep running.

pub(crate) mod become_agent;
mod container;
mod messages;
mod process_tier;
mod volume;

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Component, Path};
use std::time::Duration;

use isle_setup::container::Recipe;
use isle_setup::network::Networks;
use isle_setup::request::{
    ForkReply, ForkRequest, MakeRequest, MakeTier, MeasureTree, Measured, RemoveTree, Removed,
};
use isle_setup::staging_root;
use isle_setup::sys::{Cloned, Doing, Step, StepError, check, clone_process, forget_signal_choices, prctl};
use isle_setup::tree::{self, Measurement};

use crate::command_line::{ForkServerKind, ForkServerOptions};
use crate::process_title;
use messages::{MAX_REQUEST, answer, receive, send};

/// The descriptor of the socket to the daemon when the fork server starts.
const CONTROL: i32 = 3;

struct Server {
    control: OwnedFd,
    recipe: Recipe,
    networks: Networks,
}

/// Serves until the daemon disconnects.
pub(crate) fn run(options: &ForkServerOptions) -> Result<(), StepError> {
    // SAFETY: the daemon passes its end as this descriptor and nothing else here uses it.
    let control = unsafe { OwnedFd::from_raw_fd(CONTROL) };
    forget_signal_choices();
    // Only commands of sandboxes are executed from here, which must not gain privileges either.
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).doing(|| "set no-new-privileges".into())?;
    match options.kind {
        ForkServerKind::Processes => return process_tier::run(control),
        ForkServerKind::Namespaces => {
            ignore_exited_children()?;
            unshare(libc::CLONE_NEWNS)?;
        }
        ForkServerKind::MappedNamespaces => {
            ignore_exited_children()?;
            unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
            send(&control, &ForkReply::MapMe, None)?;
            let mut answer = [0u8; 8];
            rustix::io::read(&control, &mut answer).doing(|| "wait for the id maps".into())?;
            isle_setup::privileges::become_id(0).doing(|| "become root of the user namespace".into())?;
        }
    }
    staging_root::enter(&options.state, &options.scratch)?;
    process_title::locate();
    protect_from_oom_killer();
    let mut server = Server { control, recipe: Recipe::new(), networks: Networks::default() };
    send(&server.control, &ForkReply::Ready, None)?;
    server.serve()
}

fn unshare(flags: libc::c_int) -> Step<()> {
    // SAFETY: takes flags only.
    check(unsafe { libc::unshare(flags) }.into()).map(drop).doing(|| "unshare namespaces".into())
}

/// The daemon watches sandboxes through pidfds; nothing has to be reaped here.
fn ignore_exited_children() -> Step<()> {
    // SAFETY: SIG_IGN is a valid disposition for SIGCHLD.
    let previous = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    if previous == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
        .doing(|| "ignore exited children".into())
}

/// Asks the scheduler not to preempt other processes when this one wakes up: most sandboxes are made ahead of
/// their use, while clients wait for commands. Its children are scheduled as usual.
fn schedule_as_batch() {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: a valid parameter block; this process has one thread. A failure only costs speed.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK, &raw const none) };
}

impl Server {
    fn serve(&mut self) -> Result<(), StepError> {
        schedule_as_batch();
        let mut buffer = vec![0u8; MAX_REQUEST];
        while let Some((request, descriptors)) = receive(&self.control, &mut buffer)? {
            match request {
                ForkRequest::Make(request) => self.make(&request, descriptors)?,
                ForkRequest::Remove(RemoveTree { ticket, path }) => self.in_child(ticket, &path, |path| {
                    let errno = tree::remove(path).err().and_then(|error| error.raw_os_error()).unwrap_or(0);
                    ForkReply::Removed(Removed { ticket, errno })
                })?,
                ForkRequest::Measure(MeasureTree { ticket, path, seconds }) => {
                    self.in_child(ticket, &path, |path| {
                        let Measurement { bytes, is_whole } =
                            tree::measure(path, Duration::from_secs(seconds));
                        ForkReply::Measured(Measured { ticket, bytes, is_whole })
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Does slow work on a tree of the state directory in a child, so that other requests are not delayed.
    fn in_child(
        &self,
        ticket: u64,
        path: &str,
        work: impl FnOnce(&Path) -> ForkReply,
    ) -> Result<(), StepError> {
        let relative = Path::new(path);
        let stays_below = relative.components().all(|part| matches!(part, Component::Normal(_)));
        let reply = || {
            let path = Path::new(staging_root::STATE).join(relative);
            if stays_below && relative.components().next().is_some() {
                work(&path)
            } else {
                ForkReply::Removed(Removed { ticket, errno: libc::EINVAL })
            }
        };
        // SAFETY: this process has one thread.
        match unsafe { clone_process(0, None) } {
            Ok(Cloned::Child) => {
                let status = i32::from(send(&self.control, &reply(), None).is_err());
                // SAFETY: exits at once; no destructor of the parent may run here.
                unsafe { libc::_exit(status) }
            }
            Ok(Cloned::Parent { .. }) => Ok(()),
            // Without a child other requests wait; removing may be what frees resources.
            Err(_) => send(&self.control, &reply(), None),
        }
    }

    /// Clones a sandbox. Failures before the clone are reported here; later ones are reported by the child on
    /// its own link.
    fn make(&mut self, request: &MakeRequest, descriptors: Vec<OwnedFd>) -> Result<(), StepError> {
        let outcome = match request.tier {
            MakeTier::Container => self.make_container(request, descriptors),
            // Made by the other kind of fork server.
            MakeTier::Process => Err(io::Error::from_raw_os_error(libc::EINVAL))
                .doing(|| "make a sandbox of tier process in a fork server for namespaces".into()),
        };
        answer(&self.control, request.ticket, outcome)
    }
}

/// The OOM killer should kill an agent last; it inherits the score from here. Without the permission to lower
/// it, commands still have a higher score.
fn protect_from_oom_killer() {
    fs::write("/proc/self/oom_score_adj", b"-900").ok();
}
