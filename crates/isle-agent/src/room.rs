//! What of this sandbox has no room left. Asked when a run did not end well: a program that meets a
//! full disk says so in its own words, if at all, and the host wants to name the limit.

use isle_wire::{Exit, Full, Room};
use rustix::fs::{StatVfs, statvfs};

use crate::place;

/// The part of a whole that counts as nothing left: programs give up before the last byte is gone.
const RESERVE: u64 = 100;

/// What is full after a run that ended so.
pub(crate) fn full_after(exit: Exit) -> Vec<Full> {
    // Among the host's processes the file system is the host's; no limit of this sandbox is in it.
    if exit == Exit::Code(0) || place::private().is_some() {
        return Vec::new();
    }
    let mut full = Vec::new();
    let disk = statvfs("/").ok();
    // The layer and the workspace share one file system.
    if let Some(disk) = &disk {
        let bytes = disk.f_frsize;
        let (all, free) = (disk.f_blocks.saturating_mul(bytes), disk.f_bavail.saturating_mul(bytes));
        full.extend(without_room(Room::Disk, all, free));
        full.extend(without_room(Room::Inodes, disk.f_files, disk.f_ffree));
    }
    let whole = |room: &StatVfs| (room.f_blocks, room.f_bfree, room.f_files, room.f_ffree);
    if let Ok(shared) = statvfs("/dev/shm")
        // A one-shot's is a part of its disk.
        && disk.is_none_or(|disk| whole(&disk) != whole(&shared))
    {
        let bytes = shared.f_frsize;
        let (all, free) = (shared.f_blocks.saturating_mul(bytes), shared.f_bavail.saturating_mul(bytes));
        full.extend(without_room(Room::SharedMemory, all, free));
    }
    full
}

/// A file system that does not count something says that there are none in all.
fn without_room(room: Room, all: u64, free: u64) -> Option<Full> {
    (all > 0 && free <= all / RESERVE).then(|| Full { room, used: all - free, limit: all })
}
