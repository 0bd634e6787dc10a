//! Staging directories: what is written there gets its name only when it is complete.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FlockOperation, Mode, RenameFlags};

use crate::directories::{names, open_directory, remove_tree};
use crate::unpack::SCRATCH;

/// A private directory that gets its name when it is complete. It is removed on drop otherwise.
#[derive(Debug)]
pub struct StagingDir {
    parent: OwnedFd,
    name: Vec<u8>,
    directory: OwnedFd,
}

impl StagingDir {
    /// Creates one next to its destination; those of dead processes are removed.
    pub fn new(parent: OwnedFd) -> io::Result<Self> {
        sweep(parent.as_fd());
        let (name, directory) = make_scratch(parent.as_fd())?;
        Ok(Self { parent, name, directory })
    }

    /// Its temporary name.
    #[cfg(feature = "host")]
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The directory itself.
    pub fn directory(&self) -> io::Result<OwnedFd> {
        self.directory.try_clone()
    }

    /// Renames it to its final name; fails if that exists.
    pub fn place(&self, name: &[u8]) -> io::Result<()> {
        rustix::fs::fchmod(&self.directory, Mode::from_raw_mode(0o755))?;
        let flags = RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(&self.parent, &self.name[..], &self.parent, name, flags)?)
    }

    /// Moves one file in it to a name beside it.
    pub fn place_file(&self, file: &[u8], name: &[u8], replace: bool) -> io::Result<()> {
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        Ok(rustix::fs::renameat_with(&self.directory, file, &self.parent, name, flags)?)
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        // The name no longer exists if it was renamed.
        drop(remove_tree(self.parent.as_fd(), &self.name));
    }
}

pub(super) fn make_scratch(target: BorrowedFd<'_>) -> io::Result<(Vec<u8>, OwnedFd)> {
    for _ in 0..16 {
        let mut random = [0u8; 12];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let letters: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = [SCRATCH, letters.as_bytes()].concat();
        rustix::fs::mkdirat(target, &name[..], Mode::from_raw_mode(0o700))?;
        let top = open_directory(target, &name)?;
        // It is in use for as long as it is locked.
        if rustix::fs::flock(&top, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok((name, top));
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Removes staging directories of dead processes.
pub(super) fn sweep(target: BorrowedFd<'_>) {
    let Ok(names) = names(target) else { return };
    for name in names.iter().filter(|name| name.starts_with(SCRATCH)) {
        let Ok(left) = open_directory(target, name) else { continue };
        if rustix::fs::flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() {
            drop(remove_tree(target, name));
        }
    }
}
