//! The agent's program and the attacks', carried inside the daemon's. The agent is started from a sealed anonymous file:
//! nothing on disk to install, and nothing a sandbox could ever overwrite.

use std::ffi::CStr;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sys::check;

static AGENT: &[u8] = include_bytes!(env!("ISLE_AGENT"));
static ATTACKS: &[u8] = include_bytes!(env!("ISLE_PROBE"));

/// The attack program: a static executable that runs in any sandbox and tells what it could reach.
#[must_use]
pub fn attack_program() -> &'static [u8] {
    ATTACKS
}

/// The agent's program, which is also the client of the control socket.
pub(super) fn agent_program() -> &'static [u8] {
    AGENT
}

/// A sealed, executable file with the agent in it.
pub(super) fn agent_file() -> io::Result<OwnedFd> {
    const NAME: &CStr = c"isle-agent";
    const MFD_EXEC: libc::c_uint = 0x10;
    let create = |flags: libc::c_uint| {
        // SAFETY: a NUL-terminated name and flags.
        check(unsafe { libc::memfd_create(NAME.as_ptr(), flags) }.into())
    };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not know the executable flag and need none.
    let descriptor = create(flags | MFD_EXEC).or_else(|_| create(flags))?;
    // SAFETY: a fresh descriptor nobody else owns.
    let descriptor = unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).unwrap_or(-1)) };
    let mut file = std::fs::File::from(descriptor);
    file.write_all(AGENT)?;
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: plain numbers.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }.into())?;
    Ok(file.into())
}
