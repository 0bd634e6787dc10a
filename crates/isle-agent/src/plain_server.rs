//! The fork server in plain mode: it makes the agents of sandboxes without namespaces. Every orphan
//! of such a sandbox comes to it when the sandbox's agent was killed, and is killed in turn: a child
//! that is no agent has no business being alive.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;

use isle_linux::request::{ForkReply, ForkRequest, MakeRequest, MakeTier, Measured, Removed};
use isle_linux::setup::seccomp::{self, Instruction, Policy};
use isle_linux::setup::{privileges, process};
use isle_linux::sys::{Cloned, Doing, Step, clone_process, prctl};
use rustix::event::{PollFd, PollFlags, poll};

use crate::family::{children, own_pid};
use crate::fork_server::{LARGEST_REQUEST, Parts, answer, become_agent, join_cgroups, receive, send};
use crate::kill_order;
use crate::place::{self, Private};
use crate::reap::signal_descriptor;

struct Server {
    control: OwnedFd,
    filter: Vec<Instruction>,
    /// For sandboxes whose memory is counted by looking.
    countable: Vec<Instruction>,
    /// Agents that were not reaped yet.
    agents: HashSet<i32>,
}

/// Serves until the daemon goes.
pub(crate) fn run(control: OwnedFd) -> Step<()> {
    if rustix::process::geteuid().is_root() {
        privileges::keep_at_most(privileges::PLAIN_FORK_SERVER).doing(|| "drop capabilities".into())?;
    }
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0).doing(|| "adopt orphans".into())?;
    let ended = signal_descriptor(&[libc::SIGCHLD]).doing(|| "hear of ended children".into())?;
    let mut server = Server {
        control,
        filter: seccomp::compile(Policy::Process),
        countable: seccomp::compile_countable(Policy::Process),
        agents: HashSet::new(),
    };
    send(&server.control, &ForkReply::Ready, None)?;
    let mut buffer = vec![0u8; LARGEST_REQUEST];
    loop {
        let mut ready = [PollFd::new(&server.control, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).doing(|| "wait for requests".into()),
        }
        let (requested, signalled) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
        if signalled {
            while rustix::io::read(&ended, &mut buffer).is_ok() {}
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
            // Trees of this tier belong to ids the daemon itself can handle.
            ForkRequest::Remove(request) => {
                let removed = Removed { ticket: request.ticket, errno: libc::EOPNOTSUPP };
                send(&self.control, &ForkReply::Removed(removed), None)
            }
            ForkRequest::Measure(request) => {
                let measured = Measured { ticket: request.ticket, bytes: 0 };
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
                    .doing(|| "find the private directories".into());
            }
        };
        let parts = Parts::split(request, descriptors)?;
        let (go_read, go_write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing(|| "make a pipe".into())?;
        // SAFETY: this process has one thread.
        match unsafe { clone_process(0, parts.birthplace()) }.doing(|| "fork".into())? {
            Cloned::Child => {
                drop(go_write);
                join_cgroups(request, &parts);
                become_agent(request, parts.link, parts.listener, go_read, |go| {
                    // Too large a file is an error of the one write, not the end of the agent.
                    // SAFETY: SIG_IGN is a valid disposition for this signal.
                    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
                    let entered = process::enter(request, directories, go, self.filter_for(request))?;
                    if let Some(entry) = entered.kill_order {
                        kill_order::settle(entry);
                    }
                    place::settle(Private::new(request, directories.clone(), entered.command, entered.scope));
                    // All there is to tell follows from the kernel's version, which the daemon knows.
                    Ok((Some(entered.refusals), Vec::new()))
                })
            }
            Cloned::Parent { pid, pidfd } => {
                drop(go_read);
                rustix::io::write(&go_write, b"+").doing(|| "let the sandbox go on".into())?;
                Ok((pid, pidfd))
            }
        }
    }

    /// Reaps whoever has ended and kills whoever was adopted. Called whenever a child has ended: only
    /// then can others have come.
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
                // SAFETY: plain numbers; a child that was not reaped yet keeps its number.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }
}
