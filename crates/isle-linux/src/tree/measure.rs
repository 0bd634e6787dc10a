//! Measuring a tree. The guest may be changing it meanwhile, so the way back up is checked: a directory
//! that was moved away ends the walk of its branch, and nothing outside the tree is ever counted.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

const BLOCK: u64 = 512;

/// A directory that is being walked, without a descriptor of its own: deep trees have more levels than
/// a process has descriptors.
struct Level {
    device: u64,
    inode: u64,
    /// Directories that were not entered yet.
    waiting: Vec<CString>,
}

/// Bytes on disk of `path` and all below it; nothing there is nothing. What cannot be looked at, or is
/// gone meanwhile, counts as nothing.
#[must_use]
pub fn measure(path: &Path) -> u64 {
    let Ok(stat) = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW) else { return 0 };
    let total = bytes(&stat);
    match enter(rustix::fs::CWD, path) {
        Ok(top) => total + below(top),
        Err(_) => total,
    }
}

fn below(top: OwnedFd) -> u64 {
    let mut total = 0;
    let mut current = top;
    let Some(first) = level(&current, &mut total) else { return total };
    let mut levels = vec![first];
    while let Some(at) = levels.last_mut() {
        if let Some(name) = at.waiting.pop() {
            // Swapped for something else meanwhile, or closed to us: not entered.
            if let Ok(inner) = enter(current.as_fd(), name.as_c_str())
                && let Some(next) = level(&inner, &mut total)
            {
                current = inner;
                levels.push(next);
            }
            continue;
        }
        levels.pop();
        let Some(above) = levels.last() else { break };
        match enter(current.as_fd(), c"..") {
            Ok(up) if is(&up, above) => current = up,
            // Moved elsewhere while we were below: where we are now is not ours to walk.
            Ok(_) | Err(_) => break,
        }
    }
    total
}

/// Looks at all entries of a directory, counts them, and keeps its directories for later.
fn level(directory: &OwnedFd, total: &mut u64) -> Option<Level> {
    let own = rustix::fs::fstat(directory).ok()?;
    let mut waiting = Vec::new();
    for entry in Dir::read_from(directory).ok()?.flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        *total += bytes(&stat);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            waiting.push(name.to_owned());
        }
    }
    Some(Level { device: own.st_dev, inode: own.st_ino, waiting })
}

fn enter(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn is(directory: &OwnedFd, level: &Level) -> bool {
    rustix::fs::fstat(directory).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (level.device, level.inode))
}

fn bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_deeper_than_paths_and_descriptors_reach_is_counted() {
        let top = std::env::temp_dir().join(format!("isle-measure-{}", std::process::id()));
        std::fs::create_dir(&top).unwrap();
        let mut directory = enter(rustix::fs::CWD, top.as_path()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&directory, "d", Mode::RWXU).unwrap();
            directory = enter(directory.as_fd(), c"d").unwrap();
        }
        let before = measure(&top);
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let file = rustix::fs::openat(&directory, "hidden", flags, Mode::RUSR).unwrap();
        let mut left: usize = 1 << 20;
        while left > 0 {
            left -= rustix::io::write(&file, &vec![1u8; left]).unwrap();
        }
        rustix::fs::fsync(&file).unwrap();
        drop((directory, file));
        let after = measure(&top);
        crate::tree::remove(&top).unwrap();
        assert!(after >= before + (1 << 20), "{before} {after}");
    }

    #[test]
    fn a_link_is_counted_and_not_followed() {
        let top = std::env::temp_dir().join(format!("isle-measure-link-{}", std::process::id()));
        std::fs::create_dir(&top).unwrap();
        let empty = measure(&top);
        std::os::unix::fs::symlink("/usr", top.join("link")).unwrap();
        let linked = measure(&top);
        crate::tree::remove(&top).unwrap();
        assert!(linked < empty + (1 << 20), "{empty} {linked}");
        assert_eq!(measure(&top), 0);
    }
}
