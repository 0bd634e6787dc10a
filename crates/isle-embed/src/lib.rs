//! The agent and the attack program, embedded in the daemon's binary: nothing to install, and nothing on
//! disk that a sandbox could overwrite. Every backend that starts an agent gets it from here.

use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};

static AGENT: &[u8] = include_bytes!(env!("ISLE_AGENT"));
static ATTACKS: &[u8] = include_bytes!(env!("ISLE_PROBE"));

/// The attack program: a static executable that runs in any sandbox and reports what it could reach.
#[must_use]
pub fn attack_program() -> &'static [u8] {
    ATTACKS
}

/// The agent, a static executable. Under the name `isle-ctl` it is the client of the control socket.
#[must_use]
pub fn agent_program() -> &'static [u8] {
    AGENT
}

/// The agent in a sealed anonymous file, to be executed through `/proc/self/fd`.
pub fn agent_file() -> io::Result<OwnedFd> {
    const NAME: &str = "isle-agent";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 reject the executable flag, and do not need it.
    let descriptor = rustix::fs::memfd_create(NAME, flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create(NAME, flags))?;
    let mut file = std::fs::File::from(descriptor);
    file.write_all(AGENT)?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_file_is_sealed_and_static() {
        let mut file = std::fs::File::from(agent_file().unwrap());
        assert!(file.write_all(b"x").is_err(), "sealed");
        // A static program has no interpreter (program header type 3).
        let offset = u64::from_le_bytes(AGENT[32..40].try_into().unwrap());
        let count = u16::from_le_bytes(AGENT[56..58].try_into().unwrap());
        let headers = usize::try_from(offset).unwrap();
        let kind = |index: usize| u32::from_le_bytes(AGENT[headers + index * 56..][..4].try_into().unwrap());
        assert!((0..usize::from(count)).all(|index| kind(index) != 3));
    }
}
