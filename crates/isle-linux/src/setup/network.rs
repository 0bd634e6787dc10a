//! Network namespaces. Making one and tearing it down costs the kernel more than everything else
//! about a sandbox, so the namespace of a one-shot that is gone may serve the next one, but only if
//! nothing was ever done in it: no packet on its loopback, no failed attempt counted, no socket left.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::sys::{Doing, Step, check, loopback_up};

/// Most namespaces that are kept in view.
const MOST: usize = 32;
/// Where whatever happens in a namespace leaves a trace: interface counters, protocol counters of both
/// families, and local sockets.
const TRACES: [&str; 4] = ["dev", "snmp", "snmp6", "unix"];
/// Enough for each of them in a namespace without traffic.
const LARGEST_TRACE: usize = 8 * 1024;

/// The network namespaces of one-shots. Belongs to the fork server, which sits in the one it made or
/// chose last.
#[derive(Debug, Default)]
pub struct Networks {
    used: Vec<Network>,
    current: Option<Network>,
}

/// A network namespace and what can be seen in it.
#[derive(Debug)]
struct Network {
    namespace: File,
    traces: Vec<(File, Vec<u8>)>,
    /// The first process of the sandbox that has it: while it lives, so may others of that sandbox.
    user: Option<OwnedFd>,
}

impl Networks {
    /// Enters a namespace nobody uses: one that was left untouched, or a new one.
    pub fn enter_any(&mut self) -> Step<()> {
        while let Some(position) = self.used.iter().position(Network::is_left) {
            let network = self.used.swap_remove(position);
            if network.is_untouched() {
                network.enter().doing(|| "enter a network namespace".into())?;
                self.current = Some(network);
                return Ok(());
            }
        }
        enter_new()?;
        self.current = Network::here().ok();
        Ok(())
    }

    /// Enters a new namespace that is not used again.
    pub fn enter_new(&mut self) -> Step<()> {
        self.current = None;
        enter_new()
    }

    /// The sandbox of that first process was made in the namespace entered last.
    pub fn given_to(&mut self, process: BorrowedFd<'_>) {
        let Some(mut network) = self.current.take() else { return };
        if self.used.len() < MOST
            && let Ok(process) = process.try_clone_to_owned()
        {
            network.user = Some(process);
            self.used.push(network);
        }
    }
}

impl Network {
    /// The one this process is in, untouched so far.
    fn here() -> io::Result<Self> {
        let mut traces = Vec::with_capacity(TRACES.len());
        for name in TRACES {
            match File::open(format!("/proc/thread-self/net/{name}")) {
                Ok(file) => {
                    let content = content(&file)?;
                    traces.push((file, content));
                }
                // A kernel without IPv6.
                Err(error) if error.kind() == io::ErrorKind::NotFound && name == "snmp6" => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { namespace: File::open("/proc/thread-self/ns/net")?, traces, user: None })
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

fn enter_new() -> Step<()> {
    // SAFETY: takes flags only.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }.into()).doing(|| "make a network namespace".into())?;
    loopback_up().doing(|| "bring up loopback".into())?;
    // Lets the sandbox user serve on any port of its own loopback.
    std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", b"0")
        .doing(|| "open low ports of the sandbox's loopback".into())
}
