//! Measuring a tree. The guest may be changing it meanwhile, so the way back up is checked: a directory
//! that was moved away ends the walk of its branch, and nothing outside the tree is ever counted. A tree
//! that is changed while it is walked may have no end, so there is a time after which it is left as it is.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

const BLOCK: u64 = 512;
/// What a file without any blocks takes: its inode.
const INODE: u64 = 256;

/// A directory that is being walked, without a descriptor of its own: deep trees have more levels than
/// a process has descriptors.
struct Level {
    device: u64,
    inode: u64,
    /// Directories that were not entered yet.
    waiting: Vec<CString>,
}

/// So many entries are counted between two looks at the clock.
const BETWEEN: u32 = 256;

/// What a tree takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// Bytes on disk, as far as they were counted.
    pub bytes: u64,
    /// Whether all of it was counted in time.
    pub is_whole: bool,
}

/// What was counted. A file with several names is counted with the first that is met.
struct Total {
    bytes: u64,
    linked: HashSet<(u64, u64)>,
    entries: u32,
    until: Instant,
    is_over: bool,
}

impl Total {
    fn add(&mut self, stat: &Stat) {
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_directory || stat.st_nlink < 2 || self.linked.insert((stat.st_dev, stat.st_ino)) {
            self.bytes += bytes(stat);
        }
        self.entries = self.entries.wrapping_add(1);
        if self.entries.is_multiple_of(BETWEEN) {
            self.is_over = Instant::now() >= self.until;
        }
    }
}

/// Bytes on disk of `path` and all below it; nothing there is nothing. What cannot be looked at, or is
/// gone meanwhile, counts as nothing. After `longest` it is left as it is.
#[must_use]
pub fn measure(path: &Path, longest: Duration) -> Measurement {
    let until = Instant::now() + longest;
    let mut total = Total { bytes: 0, linked: HashSet::new(), entries: 0, until, is_over: false };
    if let Ok(stat) = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        total.add(&stat);
        if let Ok(top) = enter(rustix::fs::CWD, path) {
            below(top, &mut total);
        }
    }
    Measurement { bytes: total.bytes, is_whole: !total.is_over }
}

fn below(top: OwnedFd, total: &mut Total) {
    let mut current = top;
    let Some(first) = level(&current, total) else { return };
    let mut levels = vec![first];
    while let Some(at) = levels.last_mut() {
        if total.is_over {
            return;
        }
        if let Some(name) = at.waiting.pop() {
            // Swapped for something else meanwhile, or closed to us: not entered.
            if let Ok(inner) = enter(current.as_fd(), name.as_c_str())
                && let Some(next) = level(&inner, total)
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
}

/// Looks at all entries of a directory, counts them, and keeps its directories for later.
fn level(directory: &OwnedFd, total: &mut Total) -> Option<Level> {
    let own = rustix::fs::fstat(directory).ok()?;
    let mut waiting = Vec::new();
    for entry in Dir::read_from(directory).ok()?.flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        total.add(&stat);
        if total.is_over {
            break;
        }
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
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK).max(INODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(path: &Path) -> u64 {
        let measured = super::measure(path, Duration::from_secs(60));
        assert!(measured.is_whole);
        measured.bytes
    }

    #[test]
    fn what_cannot_be_counted_in_time_is_said_not_to_be_whole() {
        let top = std::env::temp_dir().join(format!("isle-measure-time-{}", std::process::id()));
        std::fs::create_dir(&top).unwrap();
        for name in 0..2 * BETWEEN {
            std::fs::write(top.join(name.to_string()), "").unwrap();
        }
        let whole = measure(&top);
        let part = super::measure(&top, Duration::ZERO);
        crate::tree::remove(&top).unwrap();
        assert!(!part.is_whole && part.bytes > 0 && part.bytes < whole, "{part:?} of {whole}");
    }

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
    fn a_file_with_two_names_counts_once_and_an_empty_one_counts() {
        let top = std::env::temp_dir().join(format!("isle-measure-names-{}", std::process::id()));
        std::fs::create_dir(&top).unwrap();
        std::fs::write(top.join("a"), vec![1; 1 << 20]).unwrap();
        let one = measure(&top);
        std::fs::hard_link(top.join("a"), top.join("b")).unwrap();
        let two = measure(&top);
        for name in 0..100 {
            std::fs::write(top.join(format!("e{name}")), "").unwrap();
        }
        let many = measure(&top);
        crate::tree::remove(&top).unwrap();
        assert!(two < one + (1 << 19), "{one} {two}");
        assert!(many >= two + 100 * INODE, "{two} {many}");
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
