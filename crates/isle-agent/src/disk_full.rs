//! Which resources of the sandbox are full. Checked when a run has failed: programs report a full disk in
//! many ways, if at all, and the host names the limit.

use isle_wire::{Exit, Full, FullResource};
use rustix::fs::{StatVfs, statvfs};

use crate::mode::Mode;

/// Less than one part in this many counts as full: programs fail before the last byte is used.
const RESERVE: u64 = 100;

/// What is full after a run that exited like this.
pub(crate) fn full_after(mode: &Mode, exit: Exit) -> Vec<Full> {
    // Without a root of its own the file system is the host's and has no limit of this sandbox.
    if exit == Exit::Code(0) || !mode.paths.is_own_root() {
        return Vec::new();
    }
    let mut full = Vec::new();
    // The writable layer and the workspace share one file system, unless the layer did not fit.
    let disk = statvfs(isle_setup::SANDBOX_WORKSPACE).or_else(|_| statvfs("/")).ok();
    if let Some(disk) = &disk {
        let bytes = disk.f_frsize;
        let (all, free) = (disk.f_blocks.saturating_mul(bytes), disk.f_bavail.saturating_mul(bytes));
        full.extend(if_full(FullResource::Disk, all, free));
        full.extend(if_full(FullResource::Inodes, disk.f_files, disk.f_ffree));
    }
    let whole = |room: &StatVfs| (room.f_blocks, room.f_bfree, room.f_files, room.f_ffree);
    if let Ok(shared) = statvfs("/dev/shm")
        // In a one-shot sandbox it is a part of the root file system.
        && disk.is_none_or(|disk| whole(&disk) != whole(&shared))
    {
        let bytes = shared.f_frsize;
        let (all, free) = (shared.f_blocks.saturating_mul(bytes), shared.f_bavail.saturating_mul(bytes));
        full.extend(if_full(FullResource::SharedMemory, all, free));
    }
    full
}

/// A file system that does not count something reports a total of 0.
fn if_full(resource: FullResource, all: u64, free: u64) -> Option<Full> {
    (all > 0 && free <= all / RESERVE).then(|| Full { resource, used: all - free, limit: all })
}
