//! Making the user namespace of a sandbox in the name of one of the sandbox's own ids. Where no cgroup
//! counts processes, the kernel does then: whoever lives in a user namespace counts for whom it belongs
//! to, whatever ids it takes on inside, up to the limit on processes that held when it was made. A limit
//! on each id alone would be none for guest root, who has many of them.

use std::io;
use std::os::fd::BorrowedFd;

use isle_linux::sys::{Cloned, Doing, Step, check, clone_process, prctl};

use crate::fork_server::exit;

/// Whom a sandbox's user namespace belongs to, and how many processes and threads may live in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) id: u32,
    pub(crate) processes: u64,
}

/// Clones as [`clone_process`] does, in the name of an owner when there is one.
///
/// # Safety
/// The calling process must have a single thread.
pub(crate) unsafe fn clone_for(
    owner: Option<Owner>,
    flags: libc::c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Step<Cloned> {
    let guise = owner.map(Guise::assume).transpose().doing(|| "take on the sandbox's id".into())?;
    // SAFETY: the caller vouches for the single thread.
    let cloned = unsafe { clone_process(flags, cgroup) };
    match (&cloned, guise) {
        // The new process is what it is to be; it cannot even name who its parent was.
        (Ok(Cloned::Child), _) | (_, None) => {}
        (_, Some(guise)) => {
            if guise.lay_off().is_err() {
                // A fork server that is somebody else is of no use; the daemon starts another.
                exit(5);
            }
        }
    }
    cloned.doing(|| "make namespaces".into())
}

/// What of this process was changed for the moment of a clone.
struct Guise {
    processes: libc::rlimit,
    dumpable: libc::c_int,
}

/// Changing ids leaves capabilities as they are.
const NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;

impl Guise {
    fn assume(owner: Owner) -> io::Result<Self> {
        let mut before = Self {
            processes: libc::rlimit { rlim_cur: 0, rlim_max: 0 },
            dumpable: prctl(libc::PR_GET_DUMPABLE, 0, 0)?,
        };
        // SAFETY: fills what it is given, which outlives the call.
        check(unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut before.processes) }.into())?;
        prctl(libc::PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0)?;
        let most = owner.processes.min(before.processes.rlim_max);
        let assumed = limit_processes(libc::rlimit { rlim_cur: most, ..before.processes })
            .and_then(|()| become_user(owner.id))
            // The new process has to be open to its parent, who writes its id maps.
            .and_then(|()| prctl(libc::PR_SET_DUMPABLE, 1, 0).map(drop));
        match assumed {
            Ok(()) => Ok(before),
            Err(error) => before.lay_off().and(Err(error)),
        }
    }

    /// Everything as it was.
    fn lay_off(self) -> io::Result<()> {
        become_user(0)?;
        prctl(libc::PR_SET_SECUREBITS, 0, 0)?;
        prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(self.dumpable == 1), 0)?;
        limit_processes(self.processes)
    }
}

/// Becomes `id`, with the way back to root of this namespace.
fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, id, id, 0) }).map(drop)
}

fn limit_processes(limit: libc::rlimit) -> io::Result<()> {
    // SAFETY: reads a valid rlimit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }.into()).map(drop)
}
