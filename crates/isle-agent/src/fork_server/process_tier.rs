//! The fork server for sandboxes without namespaces (tier `process`). When an agent of such a sandbox is
//! killed, its orphans are reparented to this process, which kills every child that is not an agent.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;

use isle_setup::request::{ForkReply, ForkRequest, MakeRequest, MakeTier, Measured, Removed};
use isle_setup::seccomp::{self, Instruction, Policy};
use isle_setup::sys::{Cloned, Doing, Step, clone_process, prctl};
use isle_setup::{privileges, process};
use rustix::event::{PollFd, PollFlags, poll};

use super::become_agent::{Parts, SetUp, become_agent, join_cgroups};
use super::messages::{MAX_REQUEST, answer, receive, send};
use crate::mode::Mode;
use crate::processes::proc_tree::{children, own_pid};
use crate::reap::signal_descriptor;

struct Server {
    control: OwnedFd,
    filter: Vec<Instruction>,
    /// For sandboxes whose memory the agent watches.
    countable: Vec<Instruction>,
    /// Agents that were not reaped yet.
    agents: HashSet<i32>,
}

/// Serves until the daemon disconnects.
pub(super) fn run(control: OwnedFd) -> Step<()> {
    if rustix::process::geteuid().is_root() {
        privileges::keep_at_most(privileges::PLAIN_FORK_SERVER).doing(|| "drop capabilities".into())?;
    }
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0).doing(|| "become a subreaper".into())?;
    let exited = signal_descriptor(&[libc::SIGCHLD]).doing(|| "watch for exited children".into())?;
    let mut server = Server {
        control,
        filter: seccomp::compile(Policy::Process),
        countable: seccomp::compile_countable(Policy::Process),
        agents: HashSet::new(),
    };
    send(&server.control, &ForkReply::Ready, None)?;
    let mut buffer = vec![0u8; MAX_REQUEST];
    loop {
        let mut ready = [PollFd::new(&server.control, PollFlags::IN), PollFd::new(&exited, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).doing(|| "wait for requests".into()),
        }
        let (requested, signalled) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
        if signalled {
            while rustix::io::read(&exited, &mut buffer).is_ok() {}
            server.collect();
        }
        if requested {
            let Some((request, descriptors)) = receive(&server.control, &mut buffer)? else { return Ok(()) };
            server.handle(request, descriptors)?;
        }
    }
}

impl Server {
    fn handle(&mut self, request: ForkRequest, descriptors: Vec<OwnedFd>) -> Step<()> {
        match request {
            ForkRequest::Make(request) => {
                let made = self.make(&request, descriptors);
                if let Ok((pid, _)) = &made {
                    self.agents.insert(*pid);
                }
                answer(&self.control, request.ticket, made)
            }
            // Trees of this tier belong to IDs that the daemon has access to.
            ForkRequest::Remove(request) => {
                let removed = Removed { ticket: request.ticket, errno: libc::EOPNOTSUPP };
                send(&self.control, &ForkReply::Removed(removed), None)
            }
            ForkRequest::Measure(request) => {
                let measured = Measured { ticket: request.ticket, bytes: 0, is_whole: true };
                send(&self.control, &ForkReply::Measured(measured), None)
            }
        }
    }

    fn filter_for(&self, request: &MakeRequest) -> &[Instruction] {
        if request.watch_memory > 0 { &self.countable } else { &self.filter }
    }

    fn make(&self, request: &MakeRequest, descriptors: Vec<OwnedFd>) -> Step<(i32, OwnedFd)> {
        let directories = match (request.tier, &request.directories) {
            (MakeTier::Process, Some(directories)) => directories,
            (MakeTier::Process, None) | (MakeTier::Container, _) => {
                return Err(io::Error::from_raw_os_error(libc::EINVAL))
                    .doing(|| "read the private directories".into());
            }
        };
        let parts = Parts::split(request, descriptors)?;
        let (go_read, go_write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing(|| "make a pipe".into())?;
        // SAFETY: this process has one thread.
        match unsafe { clone_process(0, parts.clone_cgroup()) }.doing(|| "fork".into())? {
            Cloned::Child => {
                drop(go_write);
                join_cgroups(&parts);
                become_agent(request, parts.link, parts.listener, go_read, |go| {
                    // A file that exceeds the limit fails the write and must not kill the agent.
                    // SAFETY: SIG_IGN is a valid disposition for this signal.
                    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
                    let entered = process::enter(request, directories, go, self.filter_for(request))?;
                    Ok(SetUp {
                        mode: Mode::process(
                            request,
                            directories.clone(),
                            entered.command,
                            entered.scope,
                            entered.oom_score,
                        ),
                        notifications: Some(entered.refusals),
                        // What is missing follows from the kernel version, which the daemon knows.
                        missing: Vec::new(),
                    })
                })
            }
            Cloned::Parent { pid, pidfd } => {
                drop(go_read);
                rustix::io::write(&go_write, b"+").doing(|| "start the set-up".into())?;
                Ok((pid, pidfd))
            }
        }
    }

    /// Reaps exited children and kills orphans. Called whenever a child has exited: only then can orphans
    /// have been reparented.
    fn collect(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: `status` is valid for the call.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
            if pid <= 0 {
                break;
            }
            self.agents.remove(&pid);
        }
        for pid in children(own_pid()) {
            if !self.agents.contains(&pid) {
                // SAFETY: plain numbers; a child that was not reaped yet keeps its PID.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }
}
