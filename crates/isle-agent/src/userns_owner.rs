//! Creating the user namespace of a sandbox as one of the sandbox's own IDs. Where no cgroup limits the
//! number of processes, the kernel then does: processes in a user namespace count for its owner, whatever
//! IDs they have inside, up to the RLIMIT_NPROC at its creation. A limit per ID would not limit guest root,
//! which has many of them.

use std::io;
use std::os::fd::BorrowedFd;

use isle_setup::sys::{Cloned, Doing, Step, check, clone_process, prctl};

use crate::fork_server::become_agent::exit;

/// The owner of a sandbox's user namespace, and the limit on processes and threads in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) id: u32,
    pub(crate) processes: u64,
}

/// Clones as [`clone_process`] does, as the owner when there is one.
///
/// # Safety
/// The calling process must have a single thread.
pub(crate) unsafe fn clone_for(
    owner: Option<Owner>,
    flags: libc::c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Step<Cloned> {
    let saved = owner.map(SavedIdentity::switch).transpose().doing(|| "switch to the sandbox's ID".into())?;
    // SAFETY: the caller vouches for the single thread.
    let cloned = unsafe { clone_process(flags, cgroup) };
    match (&cloned, saved) {
        // The new process keeps the IDs.
        (Ok(Cloned::Child), _) | (_, None) => {}
        (_, Some(saved)) => {
            if saved.restore().is_err() {
                // A fork server with the wrong IDs is of no use; the daemon starts another.
                exit(5);
            }
        }
    }
    cloned.doing(|| "create namespaces".into())
}

/// What was changed in this process for a clone, to be restored.
struct SavedIdentity {
    processes: libc::rlimit,
    dumpable: libc::c_int,
}

/// Changing ids leaves capabilities as they are.
const NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;

impl SavedIdentity {
    fn switch(owner: Owner) -> io::Result<Self> {
        let mut before = Self {
            processes: libc::rlimit { rlim_cur: 0, rlim_max: 0 },
            dumpable: prctl(libc::PR_GET_DUMPABLE, 0, 0)?,
        };
        // SAFETY: fills what it is given, which outlives the call.
        check(unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut before.processes) }.into())?;
        prctl(libc::PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0)?;
        let most = owner.processes.min(before.processes.rlim_max);
        let switched = limit_processes(libc::rlimit { rlim_cur: most, ..before.processes })
            .and_then(|()| become_user(owner.id))
            // The parent must be able to write the ID maps of the new process.
            .and_then(|()| prctl(libc::PR_SET_DUMPABLE, 1, 0).map(drop));
        match switched {
            Ok(()) => Ok(before),
            Err(error) => before.restore().and(Err(error)),
        }
    }

    /// Restores everything.
    fn restore(self) -> io::Result<()> {
        become_user(0)?;
        prctl(libc::PR_SET_SECUREBITS, 0, 0)?;
        prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(self.dumpable == 1), 0)?;
        limit_processes(self.processes)
    }
}

/// Switches to `id`, keeping root of this namespace as the saved ID.
fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, id, id, 0) }).map(drop)
}

fn limit_processes(limit: libc::rlimit) -> io::Result<()> {
    // SAFETY: reads a valid rlimit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }.into()).map(drop)
}
