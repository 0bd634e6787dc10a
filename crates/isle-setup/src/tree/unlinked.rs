//! Files that have no name any more and still take room on a disk: open in some process, run, or mapped.
//! Everything is read from `/proc`, whatever the processes do, and nothing of a process is waited for.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use crate::sys::check;
use crate::threads;

/// File systems in memory: not disk.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;
const RAMFS: u64 = 0x8584_58f6;
/// Descriptors that are looked at in one round; a sandbox's limits are far below.
const MOST_DESCRIPTORS: usize = 1 << 20;

/// A file by device and inode.
pub type FileKey = (u64, u64);

/// One look.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnlinkedFiles {
    /// Open or run, with the bytes they take.
    pub open: HashMap<FileKey, u64>,
    /// Mapped: as much as is mapped of each for sharing.
    pub mapped: HashMap<FileKey, u64>,
    /// Descriptors are in sockets, on their way from one process to another.
    pub in_flight: bool,
    descriptors: usize,
}

/// Enters the user namespace above that of a process: the creator of a sandbox's namespaces may inspect its
/// processes from there, with capabilities that no process outside has.
pub fn enter_namespace_above(pid: i32) -> io::Result<()> {
    const NS_GET_PARENT: libc::Ioctl = 0xb702;
    let own = fs::File::open(format!("/proc/{pid}/ns/user"))?;
    // SAFETY: takes no argument and gives a descriptor.
    let above = check(unsafe { libc::ioctl(own.as_raw_fd(), NS_GET_PARENT) }.into())?;
    // SAFETY: a fresh descriptor that nothing else owns.
    let above = unsafe { OwnedFd::from_raw_fd(i32::try_from(above).unwrap_or(-1)) };
    // SAFETY: a descriptor of a namespace; this process has one thread.
    check(unsafe { libc::setns(above.as_raw_fd(), libc::CLONE_NEWUSER) }.into()).map(drop)
}

impl UnlinkedFiles {
    /// As lines, for another process.
    #[must_use]
    pub fn to_lines(&self) -> String {
        let lines = |kind: char, files: &HashMap<FileKey, u64>| -> String {
            files
                .iter()
                .map(|((device, inode), bytes)| format!("{kind} {device} {inode} {bytes}\n"))
                .collect()
        };
        let flight = if self.in_flight { "f\n" } else { "" };
        format!("{}{}{flight}.\n", lines('o', &self.open), lines('m', &self.mapped))
    }

    /// Reads such lines; `None` when they are not complete.
    #[must_use]
    pub fn from_lines(text: &str) -> Option<Self> {
        let mut files = Self::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
            match fields[0] {
                "o" => drop(files.open.insert((number(1)?, number(2)?), number(3)?)),
                "m" => drop(files.mapped.insert((number(1)?, number(2)?), number(3)?)),
                "f" => files.in_flight = true,
                "." => return Some(files),
                _ => return None,
            }
        }
        None
    }

    /// Looks at one process.
    pub fn at(&mut self, pid: i32) {
        let process = PathBuf::from(format!("/proc/{pid}"));
        // The first thread can have ended, and then shows nothing of what the others have.
        let Some(living) = threads::living(pid) else { return };
        let shown = process.join("task").join(living.to_string());
        for held in ["exe", "cwd"] {
            self.file(&shown.join(held), None);
        }
        // Threads can have descriptors of their own; most share those of their process.
        let all = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
        for thread in all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
            if thread == living || !shares_descriptors(living, thread) {
                self.descriptors_of(&process.join("task").join(thread.to_string()));
            }
        }
        self.maps(&shown);
    }

    fn descriptors_of(&mut self, path: &Path) {
        let descriptors = fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
        for name in descriptors.map(|entry| entry.file_name()) {
            self.descriptors += 1;
            if self.descriptors > MOST_DESCRIPTORS {
                return;
            }
            self.file(&path.join("fd").join(&name), Some(&path.join("fdinfo").join(&name)));
        }
    }

    fn file(&mut self, path: &Path, about: Option<&Path>) {
        let Ok(meta) = fs::metadata(path) else { return };
        if meta.file_type().is_socket() {
            self.in_flight |=
                about.and_then(|about| number(about, "scm_fds:")).is_some_and(|count| count > 0);
            return;
        }
        let is_ordinary = meta.file_type().is_file() || meta.file_type().is_dir();
        let key = (meta.dev(), meta.ino());
        if meta.nlink() > 0 || !is_ordinary || self.open.contains_key(&key) || is_in_memory(path) {
            return;
        }
        // A file of the host that was replaced there while the sandbox had it, for reading only.
        if rustix::fs::statvfs(path).is_ok_and(|facts| facts.f_flag.contains(StatVfsMountFlags::RDONLY)) {
            return;
        }
        self.open.insert(key, meta.blocks() * 512);
    }

    fn maps(&mut self, process: &Path) {
        let text = fs::read(process.join("maps")).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            if let Some((key, end)) = mapped(line) {
                let known = self.mapped.entry(key).or_default();
                *known = end.max(*known);
            }
        }
    }
}

/// A number of `fdinfo`.
fn number(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn is_in_memory(path: &Path) -> bool {
    let kind = rustix::fs::statfs(path).ok().and_then(|facts| u64::try_from(facts.f_type).ok());
    kind.is_some_and(|kind| matches!(kind, TMPFS | HUGETLBFS | RAMFS))
}

/// A deleted file in a line of `maps` that can be on a disk: which, and up to where it is mapped. A
/// private mapping says nothing of itself, since libraries of the host that were replaced there look the
/// same; it keeps what was seen open before.
fn mapped(line: &str) -> Option<(FileKey, u64)> {
    let line = line.strip_suffix(" (deleted)")?;
    let mut fields = line.split_ascii_whitespace();
    let (range, permissions, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let (device, inode, path) = (fields.next()?, fields.next()?.parse::<u64>().ok()?, fields.next()?);
    let in_memory = ["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero", "/anon_hugepage", "/[aio]"];
    if inode == 0 || in_memory.iter().any(|name| path.starts_with(name)) {
        return None;
    }
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let length = hexadecimal(end)?.checked_sub(hexadecimal(start)?)?;
    let end = hexadecimal(offset)?.saturating_add(length);
    Some(((device, inode), if permissions.contains('s') { end } else { 0 }))
}

/// Whether a thread has the descriptors of another one of its process. Where that is unknown, they are inspected.
fn shares_descriptors(other: i32, thread: i32) -> bool {
    const KCMP_FILES: libc::c_long = 2;
    // SAFETY: plain numbers; the call compares and changes nothing.
    unsafe {
        libc::syscall(libc::SYS_kcmp, libc::c_long::from(other), libc::c_long::from(thread), KCMP_FILES, 0, 0)
            == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_file_that_is_mapped_is_found_in_its_line() {
        let line = "7f0000000000-7f0000100000 rw-s 00001000 fe:01 42                 /workspace/x (deleted)";
        let (key, end) = mapped(line).unwrap();
        assert_eq!((key, end), ((rustix::fs::makedev(0xfe, 1), 42), 0x101_000));
        for other in [
            "7f0000000000-7f0000100000 rw-s 00000000 fe:01 42 /workspace/x",
            "7f0000000000-7f0000100000 rw-s 00000000 00:01 42 /memfd:x (deleted)",
            "7f0000000000-7f0000100000 rw-s 00000000 00:01 7 /SYSV00000000 (deleted)",
            "garbage (deleted)",
        ] {
            assert!(mapped(other).is_none(), "{other}");
        }
        let private = "7f0000000000-7f0000100000 r-xp 00000000 fe:01 42 /usr/lib/libc.so (deleted)";
        assert_eq!(mapped(private).unwrap().1, 0);
    }

    #[test]
    fn open_files_without_a_name_are_counted_once_and_memory_is_not() {
        use std::io::Write;
        use std::os::fd::AsFd;
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        if is_in_memory(directory.path()) {
            isle_e2e::skip!("/var/tmp is in memory");
        }
        let path = directory.path().join("x");
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![1; 3 << 20]).unwrap();
        file.sync_all().unwrap();
        let key = (file.metadata().unwrap().dev(), file.metadata().unwrap().ino());
        let twice = file.as_fd().try_clone_to_owned().unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let look = || {
            let mut look = UnlinkedFiles::default();
            look.at(pid);
            assert_eq!(UnlinkedFiles::from_lines(&look.to_lines()).unwrap().open, look.open);
            look.open
        };
        assert!(!look().contains_key(&key), "it has a name");
        fs::remove_file(&path).unwrap();
        assert_eq!(look().get(&key), Some(&(file.metadata().unwrap().blocks() * 512)));
        drop((file, twice));
        assert!(!look().contains_key(&key));
    }
}
