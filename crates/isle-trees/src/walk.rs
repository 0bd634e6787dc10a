//! Walking a tree from an open directory. One step at a time, so that a single-threaded caller can
//! do something else in between; names of a directory come sorted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};

/// Deeper trees exist only to hurt.
const DEEPEST: usize = 100;
/// The same of directories with more names.
const WIDEST: usize = 500_000;
/// File systems the kernel makes up: endless, and about processes rather than files.
const MADE_UP: &[u64] = &[0x9fa0, 0x6265_6572, 0x27_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163];

/// Directories that could not be entered are named, so many of them.
const NAMED: usize = 50;

/// What an entry is.
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

/// What a mode says the entry is.
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
pub struct Found {
    /// Relative to the top.
    pub path: Vec<u8>,
    /// Its last part.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// All about it; links are not followed.
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

/// A walk that is under way.
#[derive(Debug)]
pub struct Walker {
    levels: Vec<Level>,
    path: Vec<u8>,
    /// The directory that was told last and is entered next.
    pending: Option<Vec<u8>>,
    /// Directories that were not entered, or not to their end.
    left_out: u64,
    /// The first of them.
    unentered: Vec<Vec<u8>>,
}

impl Walker {
    /// Starts at an open directory.
    pub fn new(top: OwnedFd) -> io::Result<Self> {
        let mut walker =
            Self { levels: Vec::new(), path: Vec::new(), pending: None, left_out: 0, unentered: Vec::new() };
        walker.enter(top)?;
        Ok(walker)
    }

    /// Does not enter the directory that was told last.
    pub fn skip(&mut self) {
        self.pending = None;
    }

    /// Whether something could not be looked at: not readable, too deep or too wide.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Directories that could not be looked at, the first of them.
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

    /// The directory that holds what was told last.
    #[must_use]
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.levels.last().map(|level| level.directory.as_fd())
    }

    fn enter(&mut self, directory: OwnedFd) -> io::Result<()> {
        let stat = rustix::fs::fstat(&directory)?;
        let device = stat.st_dev;
        if self.levels.last().is_some_and(|above| above.device != device) && is_made_up(&directory)? {
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
        // Not readable, or swapped for something else meanwhile: told, not entered.
        let entered = rustix::fs::openat(&level.directory, &name[..], flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|directory| self.enter(directory));
        if entered.is_err() {
            self.leave_out();
        }
    }

    /// The next entry; a directory comes before what it holds.
    pub fn step(&mut self) -> Option<Found> {
        self.enter_pending();
        loop {
            let level = self.levels.last_mut()?;
            let prefix = level.prefix;
            let Some(name) = level.names.next() else {
                self.levels.pop();
                continue;
            };
            // Gone meanwhile: not part of the tree.
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
            return Some(Found { path: self.path.clone(), name, kind, stat });
        }
    }

    /// Opens the file that was told last; fails when it is no regular file any more.
    pub fn open(&self, found: &Found) -> io::Result<(OwnedFd, Stat)> {
        let level = self.levels.last().ok_or(io::ErrorKind::NotFound)?;
        open_regular(level.directory.as_fd(), &found.name)
    }
}

fn is_made_up(directory: &OwnedFd) -> io::Result<bool> {
    let magic = rustix::fs::fstatfs(directory)?.f_type;
    Ok(u64::try_from(magic).is_ok_and(|magic| MADE_UP.contains(&magic)))
}

/// Opens a regular file by its name in a directory, waiting for nothing and following nothing.
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

/// Opens a path below a directory, through no link at all.
pub fn open_beneath(top: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if path.is_empty() { b"." } else { path };
    // A mere handle takes no other flags.
    let patience =
        if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
    let flags = flags | OFlags::CLOEXEC | patience;
    // When something anywhere is renamed meanwhile, the kernel may ask to be asked again.
    for _ in 0..128 {
        match rustix::fs::openat2(top, path, flags, Mode::empty(), resolve) {
            Err(rustix::io::Errno::AGAIN) => {}
            opened => return Ok(opened?),
        }
    }
    Err(rustix::io::Errno::AGAIN.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn a_tree_is_told_in_order_and_links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("b/c")).unwrap();
        std::fs::write(place.path().join("b/c/x"), "x").unwrap();
        std::fs::write(place.path().join("a"), "a").unwrap();
        std::os::unix::fs::symlink("b", place.path().join("link")).unwrap();
        let mut walker = Walker::new(opened(place.path())).unwrap();
        let mut told = Vec::new();
        while let Some(found) = walker.step() {
            told.push((String::from_utf8(found.path).unwrap(), found.kind));
        }
        let expected = [
            ("a", Kind::File),
            ("b", Kind::Directory),
            ("b/c", Kind::Directory),
            ("b/c/x", Kind::File),
            ("link", Kind::Symlink),
        ];
        assert_eq!(told, expected.map(|(path, kind)| (path.to_owned(), kind)));
        assert!(open_beneath(opened(place.path()).as_fd(), b"link/c", OFlags::RDONLY).is_err());
        assert!(open_beneath(opened(place.path()).as_fd(), b"../x", OFlags::RDONLY).is_err());
    }

    #[test]
    fn a_directory_that_is_skipped_is_not_entered() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("b/c")).unwrap();
        let mut walker = Walker::new(opened(place.path())).unwrap();
        assert_eq!(walker.step().unwrap().path, b"b");
        walker.skip();
        assert!(walker.step().is_none());
    }

    #[test]
    fn what_the_kernel_makes_up_is_not_entered() {
        let mut walker = Walker::new(opened("/".as_ref())).unwrap();
        while let Some(found) = walker.step() {
            if found.path != b"proc" {
                assert!(!found.path.starts_with(b"proc/"), "{:?}", String::from_utf8_lossy(&found.path));
                walker.skip();
            }
        }
    }
}
