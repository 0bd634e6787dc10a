//! Walking a tree from an open directory, one step at a time, so that a single-threaded caller can do other
//! work in between. Names of a directory are sorted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};

/// Maximum depth.
const DEEPEST: usize = 100;
/// Maximum number of names in a directory.
const WIDEST: usize = 500_000;
/// Maximum number of entries: a tree that changes during the walk could be endless.
const MOST: u64 = 2_000_000;
/// Magic numbers of pseudo file systems, which are not entered.
const PSEUDO_FILE_SYSTEMS: &[u64] = &[0x9fa0, 0x6265_6572, 0x27_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163];

/// Maximum number of listed directories that could not be entered.
const NAMED: usize = 50;

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Pipe, socket or device.
    Other,
}

/// The type in a mode.
#[must_use]
pub fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    }
}

/// One entry.
#[derive(Debug)]
pub struct WalkEntry {
    /// Relative to the top.
    pub path: Vec<u8>,
    /// Its last component.
    pub name: Vec<u8>,
    /// Its type.
    pub kind: Kind,
    /// Its metadata; symbolic links are not followed.
    pub stat: Stat,
}

#[derive(Debug)]
struct Level {
    directory: OwnedFd,
    names: std::vec::IntoIter<Vec<u8>>,
    /// Length of the path of this directory.
    prefix: usize,
    device: u64,
}

/// A walk in progress.
#[derive(Debug)]
pub struct Walker {
    levels: Vec<Level>,
    path: Vec<u8>,
    /// The last directory, which is entered next.
    pending: Option<Vec<u8>>,
    /// The number of directories that were not entered, or not completely.
    left_out: u64,
    /// The first of them.
    unentered: Vec<Vec<u8>>,
    /// How many more entries are returned.
    left: u64,
}

impl Walker {
    /// Starts at an open directory.
    pub fn new(top: OwnedFd) -> io::Result<Self> {
        Self::bounded(top, MOST)
    }

    fn bounded(top: OwnedFd, most: u64) -> io::Result<Self> {
        let (levels, path, unentered) = (Vec::new(), Vec::new(), Vec::new());
        let mut walker = Self { levels, path, pending: None, left_out: 0, unentered, left: most };
        walker.enter(top)?;
        Ok(walker)
    }

    /// Skips the contents of the last directory.
    pub fn skip(&mut self) {
        self.pending = None;
    }

    /// The number of directories that were skipped: not readable, too deep or too wide.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The first directories that were skipped.
    #[must_use]
    pub fn unentered(&self) -> &[Vec<u8>] {
        &self.unentered
    }

    fn leave_out(&mut self) {
        self.left_out += 1;
        if self.unentered.len() < NAMED {
            self.unentered.push(self.path.clone());
        }
    }

    /// The directory of the last entry.
    #[must_use]
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.levels.last().map(|level| level.directory.as_fd())
    }

    fn enter(&mut self, directory: OwnedFd) -> io::Result<()> {
        let stat = rustix::fs::fstat(&directory)?;
        let device = stat.st_dev;
        if self.levels.last().is_some_and(|above| above.device != device)
            && is_pseudo_file_system(&directory)?
        {
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() >= WIDEST {
                self.leave_out();
                break;
            }
            names.push(name.to_vec());
        }
        names.sort_unstable();
        self.levels.push(Level { directory, names: names.into_iter(), prefix: self.path.len(), device });
        Ok(())
    }

    fn enter_pending(&mut self) {
        let Some(name) = self.pending.take() else { return };
        if self.levels.len() >= DEEPEST {
            self.leave_out();
            return;
        }
        let Some(level) = self.levels.last() else { return };
        let flags =
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Not readable, or replaced meanwhile: reported, not entered.
        let entered = rustix::fs::openat(&level.directory, &name[..], flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|directory| self.enter(directory));
        if entered.is_err() {
            self.leave_out();
        }
    }

    /// The next entry; a directory comes before its contents.
    pub fn step(&mut self) -> Option<WalkEntry> {
        self.enter_pending();
        loop {
            if self.left == 0 {
                self.stop();
            }
            let level = self.levels.last_mut()?;
            let prefix = level.prefix;
            let Some(name) = level.names.next() else {
                self.levels.pop();
                continue;
            };
            // Removed meanwhile: not part of the tree.
            self.left -= 1;
            let Ok(stat) = rustix::fs::statat(&level.directory, &name[..], AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            self.path.truncate(prefix);
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name);
            let kind = kind_of(&stat);
            if kind == Kind::Directory {
                self.pending = Some(name.clone());
            }
            return Some(WalkEntry { path: self.path.clone(), name, kind, stat });
        }
    }

    /// The limit is reached: the rest of every open directory is skipped.
    fn stop(&mut self) {
        while let Some(level) = self.levels.pop() {
            if level.names.len() > 0 {
                self.path.truncate(level.prefix);
                self.leave_out();
            }
        }
    }

    /// Opens the last file; fails if it is no longer a regular file.
    pub fn open(&self, found: &WalkEntry) -> io::Result<(OwnedFd, Stat)> {
        let level = self.levels.last().ok_or(io::ErrorKind::NotFound)?;
        open_regular(level.directory.as_fd(), &found.name)
    }
}

fn is_pseudo_file_system(directory: &OwnedFd) -> io::Result<bool> {
    let magic = rustix::fs::fstatfs(directory)?.f_type;
    Ok(u64::try_from(magic).is_ok_and(|magic| PSEUDO_FILE_SYSTEMS.contains(&magic)))
}

/// Opens a regular file by its name in a directory, without blocking and without following symbolic links.
pub fn open_regular(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<(OwnedFd, Stat)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    match kind_of(&stat) {
        Kind::File => Ok((file, stat)),
        Kind::Directory => Err(io::ErrorKind::IsADirectory.into()),
        Kind::Symlink | Kind::Other => Err(rustix::io::Errno::NXIO.into()),
    }
}

/// Opens a path below a directory, without following any symbolic link.
pub fn open_beneath(top: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if path.is_empty() { b"." } else { path };
    // O_PATH allows no other flags.
    let patience =
        if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
    let flags = flags | OFlags::CLOEXEC | patience;
    // The kernel returns EAGAIN when something is renamed meanwhile.
    for _ in 0..128 {
        match rustix::fs::openat2(top, path, flags, Mode::empty(), resolve) {
            Err(rustix::io::Errno::AGAIN) => {}
            opened => return Ok(opened?),
        }
    }
    Err(rustix::io::Errno::AGAIN.into())
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
