//! Network namespaces. Making one and tearing it down costs the kernel more than everything else
//! about a sandbox, so the namespace of a one-shot that is gone may serve the next one, but only if
//! nothing was ever done in it: no packet on its loopback, no failed attempt counted, no socket left.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::sys::{Doing, Step, check, loopback_up, make_local};

/// Where the agent answers questions about names, once the sandbox has a network.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);
/// The addresses that granted names get: a block that is set apart for tests of networks and leads
/// nowhere on the internet. To the kernel of the sandbox all of it is this machine, so programs connect
/// to the agent as they would to a server, without a network card, a capability or a way out.
const NAMES: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);

/// Whether an address is set apart for names.
#[must_use]
pub fn is_for_names(address: Ipv4Addr) -> bool {
    let (block, length) = NAMES;
    (address.to_bits() ^ block.to_bits()).leading_zeros() >= u32::from(length)
}

/// Most namespaces that are kept in view.
const MOST: usize = 32;
/// Where whatever happens in a namespace leaves a trace: interface counters, protocol counters of both
/// families, and local sockets.
const TRACES: [&str; 4] = ["dev", "snmp", "snmp6", "unix"];
/// Enough for each of them in a namespace without traffic.
const LARGEST_TRACE: usize = 8 * 1024;

/// What has to be done about the network namespace of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is made with the sandbox and must be set up.
    New,
    /// It is one that an earlier sandbox left as it was.
    SetUp,
}

/// The network namespaces of one-shots that are or were used, as the fork server sees them.
#[derive(Debug, Default)]
pub struct Networks {
    used: Vec<Network>,
}

/// A network namespace and what can be seen in it.
#[derive(Debug)]
pub struct Network {
    namespace: File,
    traces: Vec<(File, Vec<u8>)>,
    /// The first process of the sandbox that has it: while it lives, so may others of that sandbox.
    user: Option<OwnedFd>,
}

impl Networks {
    /// Enters an unused, empty namespace, if there is one: what
    /// is cloned now is in it.
    pub fn enter_untouched(&mut self) -> Option<Network> {
        while let Some(position) = self.used.iter().position(Network::is_left) {
            let network = self.used.swap_remove(position);
            if network.is_untouched() && network.enter().is_ok() {
                return Some(network);
            }
        }
        None
    }

    /// Remembers who has a namespace.
    pub fn given(&mut self, mut network: Network, process: BorrowedFd<'_>) {
        if self.used.len() < MOST
            && let Ok(process) = process.try_clone_to_owned()
        {
            network.user = Some(process);
            self.used.push(network);
        }
    }
}

impl Network {
    /// The one a process has that was just cloned into it and has not done anything yet.
    pub fn fresh_of(pid: i32) -> io::Result<Self> {
        let mut traces = Vec::with_capacity(TRACES.len());
        for name in TRACES {
            match File::open(format!("/proc/{pid}/net/{name}")) {
                Ok(file) => {
                    let content = content(&file)?;
                    traces.push((file, content));
                }
                // A kernel without IPv6.
                Err(error) if error.kind() == io::ErrorKind::NotFound && name == "snmp6" => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { namespace: File::open(format!("/proc/{pid}/ns/net"))?, traces, user: None })
    }

    /// Whether every process of its sandbox has ended: the first one ends last.
    fn is_left(&self) -> bool {
        let Some(user) = &self.user else { return true };
        let mut poll = libc::pollfd { fd: user.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry; does not wait.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    fn is_untouched(&self) -> bool {
        self.traces.iter().all(|(file, before)| content(file).is_ok_and(|now| now == *before))
    }

    fn enter(&self) -> io::Result<()> {
        // SAFETY: a descriptor of a network namespace.
        check(unsafe { libc::setns(self.namespace.as_raw_fd(), libc::CLONE_NEWNET) }.into()).map(drop)
    }
}

/// All of a file that is made when it is read.
fn content(file: &File) -> io::Result<Vec<u8>> {
    let mut buffer = [0u8; LARGEST_TRACE];
    let mut length = 0;
    loop {
        match file.read_at(&mut buffer[length..], length as u64)? {
            0 if length == LARGEST_TRACE => return Err(io::ErrorKind::FileTooLarge.into()),
            0 => return Ok(buffer[..length].to_vec()),
            count => length += count,
        }
    }
}

/// In the sandbox: makes a new namespace usable.
pub(super) fn set_up() -> Step<()> {
    loopback_up().doing(|| "bring up loopback".into())?;
    make_local(NAMES.0, NAMES.1).doing(|| "give loopback the addresses of names".into())?;
    // Lets the sandbox user serve on any port of its own loopback.
    std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", b"0")
        .doing(|| "open low ports of the sandbox's loopback".into())
}
