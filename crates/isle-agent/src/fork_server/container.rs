//! Cloning a sandbox with namespaces.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use isle_setup::container;
use isle_setup::network::{self, Network};
use isle_setup::request::{Extent, MakeRequest, Volume, outside};
use isle_setup::sys::{Cloned, Doing, Step};

use super::Server;
use super::become_agent::{Parts, SetUp, become_agent, join_cgroups};
use super::volume::attach_volume;
use crate::mode::Mode;
use crate::userns_owner::{Owner, clone_for};

impl Server {
    /// Clones a process into new namespaces; it sets itself up and becomes the agent.
    pub(super) fn make_container(
        &mut self,
        request: &MakeRequest,
        descriptors: Vec<OwnedFd>,
    ) -> Step<(i32, OwnedFd)> {
        let parts = Parts::split(request, descriptors)?;
        let volume = attach_volume(request, parts.loop_device.as_ref())?;
        let used_before = if is_one_shot(request) { self.networks.enter_untouched() } else { None };
        let network = if used_before.is_some() { network::State::SetUp } else { network::State::New };
        let (go_read, go_write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing(|| "make a pipe".into())?;
        // SAFETY: this process has one thread.
        let cloned =
            unsafe { clone_for(owner_of(request), container::namespaces(network), parts.clone_cgroup()) }?;
        match cloned {
            Cloned::Child => {
                drop(go_write);
                join_cgroups(&parts);
                become_agent(request, parts.link, parts.listener, go_read, |go| {
                    let entered = container::enter(request, go, network, &self.recipe)?;
                    Ok(SetUp {
                        mode: Mode::container(request, entered.oom_score),
                        notifications: entered.refusals,
                        missing: entered.missing,
                    })
                })
            }
            Cloned::Parent { pid, pidfd } => {
                drop(go_read);
                drop(volume);
                if is_one_shot(request)
                    && let Some(network) = used_before.or_else(|| Network::fresh_of(pid).ok())
                {
                    self.networks.given(network, pidfd.as_fd());
                }
                // If this fails, the child sees the pipe closed without a byte and exits.
                map_ids(pid, &request.ids)?;
                rustix::io::write(&go_write, b"+").doing(|| "start the set-up".into())?;
                Ok((pid, pidfd))
            }
        }
    }
}

/// The owner of the sandbox's user namespace: one of its own IDs, where that is used to count processes.
fn owner_of(request: &MakeRequest) -> Option<Owner> {
    let id = outside(&request.ids, 0)?;
    (request.rlimit_processes > 0).then_some(Owner { id, processes: request.rlimit_processes })
}

/// Whether nothing of the sandbox is kept.
fn is_one_shot(request: &MakeRequest) -> bool {
    matches!(request.volume, Volume::Memory) && !request.has_listener
}

fn map_ids(pid: i32, ids: &[Extent]) -> Step<()> {
    let mut map = String::new();
    for Extent { inside, outside, length } in ids {
        map.push_str(&format!("{inside} {outside} {length}\n"));
    }
    for file in ["gid_map", "uid_map"] {
        // One write: the kernel takes a map once.
        let mut target = fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/{pid}/{file}"))
            .doing(|| format!("open the {file}"))?;
        target.write_all(map.as_bytes()).doing(|| format!("write the {file}"))?;
    }
    Ok(())
}
