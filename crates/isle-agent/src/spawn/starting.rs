//! Children that have not executed their program yet, in a sandbox that has had a command as guest root: root
//! can stop them at any moment, and a child that shares memory with the agent would block the agent too.
//! There a child is a plain fork that reports on a pipe. The agent serves other streams meanwhile, and kills
//! a child that takes too long.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::unix::AsyncFd;

use crate::run::Reaped;

thread_local! {
    // The agent has one thread.
    static HAD_ROOT: Cell<bool> = const { Cell::new(false) };
    /// With how it exited, if it was reaped before its run was registered.
    static STARTING: RefCell<HashMap<i32, Option<Reaped>>> = RefCell::default();
}

/// A program is going to be started as guest root.
pub(crate) fn root_command_starts() {
    HAD_ROOT.set(true);
}

/// Whether there may be processes of guest root.
pub(crate) fn had_root() -> bool {
    HAD_ROOT.get()
}

/// A child whose run is not registered yet. Dropping this kills it.
#[derive(Debug)]
pub(crate) struct Starting {
    pid: i32,
}

impl Starting {
    pub(crate) fn new(pid: i32) -> Self {
        STARTING.with_borrow_mut(|all| all.insert(pid, None));
        Self { pid }
    }

    /// Its run was registered; returns how the child exited if it was reaped before.
    pub(crate) fn registered(self) -> Option<Reaped> {
        STARTING.with_borrow_mut(|all| all.remove(&self.pid)).flatten()
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let entry = STARTING.with_borrow_mut(|all| all.remove(&self.pid));
        // Until it is reaped it keeps its PID.
        if let (Some(None), Some(pid)) = (entry, Pid::from_raw(self.pid)) {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// A child of the agent was reaped; `true` when it was one of these.
pub(crate) fn exited(pid: i32, reaped: Reaped) -> bool {
    STARTING.with_borrow_mut(|all| match all.get_mut(&pid) {
        Some(entry) => {
            *entry = Some(reaped);
            true
        }
        None => false,
    })
}

/// Everything a child reports until it has executed its program or exited. No other process has the other
/// end of the pipe.
pub(crate) async fn read_report(report: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut reported = Vec::new();
    let mut bytes = [0; 32];
    loop {
        let mut ready = report.readable().await?;
        match ready.try_io(|inner| rustix::io::read(inner.get_ref(), &mut bytes).map_err(Into::into)) {
            Ok(Ok(0)) => return Ok(reported),
            Ok(Ok(count)) => reported.extend_from_slice(&bytes[..count]),
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
}
