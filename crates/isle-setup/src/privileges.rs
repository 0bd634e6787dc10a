//! Capabilities and identities. The agent keeps what it needs to start commands as the two guest
//! users; a command as the sandbox user has nothing at all, a command as guest root has five
//! capabilities that count only inside the sandbox's user namespace.

use std::io;

use crate::sys::{check, prctl};

/// `CHOWN`, `DAC_OVERRIDE`, `FOWNER`, `SETGID`, `SETUID`.
pub const GUEST_ROOT: u64 = (1 << 0) | (1 << 1) | (1 << 3) | (1 << 6) | (1 << 7);

/// What the agent keeps besides: `KILL`, `SETPCAP`, `SYS_PTRACE` (to read which namespaces a process
/// is in), `SYS_ADMIN` (to tag each run with a UTS namespace). All inside the sandbox only.
pub const AGENT: u64 = GUEST_ROOT | (1 << 5) | (1 << 8) | (1 << 19) | (1 << 21);

/// What a daemon that is root, its fork servers and its helpers may ever have: files and processes of
/// other ids, ids, mounts and namespaces, limits, low ports. Nothing of the kernel, the clock, the
/// network's set-up, raw devices or audit.
pub const DAEMON: u64 = GUEST_ROOT
    | (1 << 2)  // DAC_READ_SEARCH
    | (1 << 4)  // FSETID
    | (1 << 5)  // KILL
    | (1 << 8)  // SETPCAP
    | (1 << 10) // NET_BIND_SERVICE
    | (1 << 18) // SYS_CHROOT
    | (1 << 19) // SYS_PTRACE
    | (1 << 21) // SYS_ADMIN
    | (1 << 24); // SYS_RESOURCE

/// What a fork server without namespaces needs: to make agents of other ids and to end them.
pub const PLAIN_FORK_SERVER: u64 = (1 << 1)  // DAC_OVERRIDE
    | (1 << 5)  // KILL
    | (1 << 6)  // SETGID
    | (1 << 7)  // SETUID
    | (1 << 8)  // SETPCAP
    | (1 << 24); // SYS_RESOURCE

const LAST_CAPABILITY: libc::c_ulong = 63;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Set {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Sets permitted and effective capabilities to `keep`, inheritable and ambient to none.
pub fn set_capabilities(keep: u64) -> io::Result<()> {
    let header = Header { version: 0x2008_0522, pid: 0 };
    let half = |bits: u64| {
        let bits = u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
        Set { effective: bits, permitted: bits, inheritable: 0 }
    };
    let sets = [half(keep), half(keep >> 32)];
    // SAFETY: version 3 of the call reads a header and two sets, which live through it.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) }).map(drop)
}

/// Gives up, for good, every capability that is not in `keep`. Of the calling thread and what it starts.
pub fn keep_at_most(keep: u64) -> io::Result<()> {
    let held = permitted()?;
    if held == 0 {
        return Ok(());
    }
    bound_capabilities(keep)?;
    set_capabilities(held & keep)
}

fn permitted() -> io::Result<u64> {
    let header = Header { version: 0x2008_0522, pid: 0 };
    let mut sets = [Set::default(); 2];
    // SAFETY: version 3 of the call reads a header and fills two sets, which live through it.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) })?;
    Ok(u64::from(sets[0].permitted) | u64::from(sets[1].permitted) << 32)
}

/// Drops every capability not in `keep` from the bounding set, so that no exec can bring it back.
pub fn bound_capabilities(keep: u64) -> io::Result<()> {
    for capability in 0..=LAST_CAPABILITY {
        if keep & (1 << capability) != 0 {
            continue;
        }
        match prctl(libc::PR_CAPBSET_DROP, capability, 0) {
            Ok(_) => {}
            // Past the last one the kernel knows.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Empties a bounding set that holds no more than [`GUEST_ROOT`].
pub fn bound_to_nothing() -> io::Result<()> {
    for capability in (0..64).filter(|capability| GUEST_ROOT & (1 << capability) != 0) {
        prctl(libc::PR_CAPBSET_DROP, capability, 0)?;
    }
    Ok(())
}

/// Becomes `id` (user and group) without supplementary groups.
pub fn become_id(id: u32) -> io::Result<()> {
    // SAFETY: no pointers but a null one for an empty list.
    check(unsafe { libc::setgroups(0, std::ptr::null()) }.into())?;
    // SAFETY: plain numbers.
    check(unsafe { libc::setresgid(id, id, id) }.into())?;
    // SAFETY: plain numbers.
    check(unsafe { libc::setresuid(id, id, id) }.into()).map(drop)
}
