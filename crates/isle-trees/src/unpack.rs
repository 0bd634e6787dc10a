//! Unpacking an archive into a directory. Everything goes to a scratch directory inside it first and
//! is moved into place when the whole archive has come and is good, so that a bad archive, or half of
//! one, changes nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use isle_wire::Carried;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps};

use crate::carried::learn;
use crate::tar::{Entry, EntryKind, Reader, Sink, TarError};
use crate::walk::{Kind, kind_of, open_beneath};

/// What names of scratch directories begin with.
pub(crate) const SCRATCH: &[u8] = b".isle-unpack-";
/// Trees that are removed or merged are not deeper, unless somebody means harm.
const DEEPEST: usize = 256;

/// How much is taken.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Entries at most.
    pub entries: u64,
    /// Bytes of all files at most.
    pub bytes: u64,
    /// Permission bits that files may get.
    pub modes: u32,
}

/// Why nothing was unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The archive is not good.
    #[error(transparent)]
    Archive(#[from] TarError),
    /// Writing failed.
    #[error("{doing}: {error}")]
    Io {
        /// What was being done.
        doing: String,
        /// What happened.
        error: io::Error,
    },
    /// A directory stands where a file is due, or the other way round.
    #[error("{path:?} is {found} in the way of {due}")]
    InTheWay {
        /// Where.
        path: String,
        /// What is there.
        found: &'static str,
        /// What is to come.
        due: &'static str,
    },
}

fn failed(doing: impl Into<String>) -> impl FnOnce(io::Error) -> UnpackError {
    let doing = doing.into();
    move |error| UnpackError::Io { doing, error }
}

#[derive(Debug)]
struct Writing {
    file: OwnedFd,
    mode: u32,
    modified: i64,
}

/// Writes entries below the scratch directory.
#[derive(Debug)]
struct Scratch {
    top: OwnedFd,
    /// The directory the last entry was in, since most have the same.
    above: Option<(Vec<Vec<u8>>, OwnedFd)>,
    writing: Option<Writing>,
    modes: u32,
    carried: Carried,
}

/// Unpacks one archive.
#[derive(Debug)]
pub struct Unpacker {
    target: OwnedFd,
    name: Vec<u8>,
    reader: Reader,
    scratch: Scratch,
}

impl Unpacker {
    /// Unpacks into an open directory.
    pub fn new(target: OwnedFd, bounds: Bounds) -> io::Result<Self> {
        sweep(target.as_fd());
        let (name, top) = make_scratch(target.as_fd())?;
        let scratch =
            Scratch { top, above: None, writing: None, modes: bounds.modes, carried: Carried::default() };
        Ok(Self { target, name, reader: Reader::new(bounds.entries, bounds.bytes), scratch })
    }

    /// The next bytes of the archive.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), UnpackError> {
        self.reader.feed(bytes, &mut self.scratch)
    }

    /// What has come so far.
    #[must_use]
    pub fn carried(&self) -> &Carried {
        &self.scratch.carried
    }

    /// The archive has ended: moves everything into place.
    pub fn finish(mut self) -> Result<Carried, UnpackError> {
        self.reader.finish()?;
        let (scratch, target) = (self.scratch.top.as_fd(), self.target.as_fd());
        check(scratch, target, &mut Vec::new(), 0)?;
        merge(scratch, target, 0).map_err(failed("put the files in place"))?;
        let mut carried = std::mem::take(&mut self.scratch.carried);
        learn(&mut carried, self.reader.comments());
        Ok(carried)
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        // What was not moved away is not wanted; if it cannot be removed, the next unpacking tries again.
        drop(remove_tree(self.target.as_fd(), &self.name));
    }
}

/// A directory that nobody else touches, to be given its name when it is complete. It goes away with
/// this value unless it was.
#[derive(Debug)]
pub struct Draft {
    parent: OwnedFd,
    name: Vec<u8>,
    directory: OwnedFd,
}

impl Draft {
    /// Makes one beside where it is to be; those of others who died are removed.
    pub fn new(parent: OwnedFd) -> io::Result<Self> {
        sweep(parent.as_fd());
        let (name, directory) = make_scratch(parent.as_fd())?;
        Ok(Self { parent, name, directory })
    }

    /// The directory itself.
    pub fn directory(&self) -> io::Result<OwnedFd> {
        self.directory.try_clone()
    }

    /// Gives it its name; fails when something has that name.
    pub fn place(&self, name: &[u8]) -> io::Result<()> {
        rustix::fs::fchmod(&self.directory, Mode::from_raw_mode(0o755))?;
        let flags = RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(&self.parent, &self.name[..], &self.parent, name, flags)?)
    }

    /// Gives one file in it a name outside of it.
    pub fn place_file(&self, file: &[u8], name: &[u8], replace: bool) -> io::Result<()> {
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        Ok(rustix::fs::renameat_with(&self.directory, file, &self.parent, name, flags)?)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Nothing has that name any more when it was placed.
        drop(remove_tree(self.parent.as_fd(), &self.name));
    }
}

fn make_scratch(target: BorrowedFd<'_>) -> io::Result<(Vec<u8>, OwnedFd)> {
    for _ in 0..16 {
        let mut random = [0u8; 12];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let letters: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = [SCRATCH, letters.as_bytes()].concat();
        rustix::fs::mkdirat(target, &name[..], Mode::from_raw_mode(0o700))?;
        let top = open_directory(target, &name)?;
        // As long as it is locked it is somebody's.
        if rustix::fs::flock(&top, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok((name, top));
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Removes scratch directories of those who died over their work.
fn sweep(target: BorrowedFd<'_>) {
    let Ok(names) = names(target) else { return };
    for name in names.iter().filter(|name| name.starts_with(SCRATCH)) {
        let Ok(left) = open_directory(target, name) else { continue };
        if rustix::fs::flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() {
            drop(remove_tree(target, name));
        }
    }
}

fn names(directory: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

fn open_directory(above: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(above, name, flags, Mode::empty())?)
}

/// Removes a file, or a directory with all it holds. Links are removed, never followed.
pub fn remove_tree(above: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    remove_below(above, name, 0)
}

fn remove_below(above: BorrowedFd<'_>, name: &[u8], depth: usize) -> io::Result<()> {
    let stat = match rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if kind_of(&stat) != Kind::Directory {
        return Ok(rustix::fs::unlinkat(above, name, AtFlags::empty())?);
    }
    if depth >= DEEPEST {
        return Err(rustix::io::Errno::NAMETOOLONG.into());
    }
    let inner = open_directory(above, name)?;
    for inside in names(inner.as_fd())? {
        remove_below(inner.as_fd(), &inside, depth + 1)?;
    }
    Ok(rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)?)
}

fn look(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Kind>> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(kind_of(&stat))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Looks whether everything can be moved into place, before anything is.
fn check(
    scratch: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    path: &mut Vec<u8>,
    depth: usize,
) -> Result<(), UnpackError> {
    let looking = || failed("look at what is there");
    if depth > DEEPEST {
        return Err(looking()(io::ErrorKind::InvalidFilename.into()));
    }
    for name in names(scratch).map_err(looking())? {
        let length = path.len();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let in_the_way = |found, due| UnpackError::InTheWay {
            path: String::from_utf8_lossy(path).into_owned(),
            found,
            due,
        };
        let coming = look(scratch, &name).map_err(looking())?;
        match (coming, look(target, &name).map_err(looking())?) {
            (_, None) | (None, _) => {}
            (Some(Kind::Directory), Some(Kind::Directory)) => {
                let (inner, other) = (open_directory(scratch, &name), open_directory(target, &name));
                let (inner, other) = (inner.map_err(looking())?, other.map_err(looking())?);
                check(inner.as_fd(), other.as_fd(), path, depth + 1)?;
            }
            (Some(Kind::Directory), Some(Kind::Symlink)) => return Err(in_the_way("a link", "a directory")),
            (Some(Kind::Directory), Some(_)) => return Err(in_the_way("a file", "a directory")),
            (Some(_), Some(Kind::Directory)) => return Err(in_the_way("a directory", "a file")),
            (Some(_), Some(Kind::Other)) => return Err(in_the_way("a pipe, socket or device", "a file")),
            (Some(_), Some(Kind::File)) => {
                // Replacing would get around a read-only file; whoever may not write it may not replace it.
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                rustix::fs::openat(target, &name[..], flags, Mode::empty()).map_err(|error| {
                    failed(format!("write {}", String::from_utf8_lossy(path)))(error.into())
                })?;
            }
            (Some(_), Some(Kind::Symlink)) => {}
        }
        path.truncate(length);
    }
    Ok(())
}

fn merge(scratch: BorrowedFd<'_>, target: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
    for name in names(scratch)? {
        let both = (look(scratch, &name)?, look(target, &name)?);
        if both == (Some(Kind::Directory), Some(Kind::Directory)) && depth <= DEEPEST {
            let (inner, other) = (open_directory(scratch, &name)?, open_directory(target, &name)?);
            merge(inner.as_fd(), other.as_fd(), depth + 1)?;
        } else {
            rustix::fs::renameat(scratch, &name[..], target, &name[..])?;
        }
    }
    Ok(())
}

impl Scratch {
    /// The directory with these parts, made when missing.
    fn directory(&mut self, parts: &[Vec<u8>], mode: u32) -> io::Result<OwnedFd> {
        let path = parts.join(&b'/');
        match open_beneath(self.top.as_fd(), &path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let Some((name, above)) = parts.split_last() else { return Err(io::ErrorKind::NotFound.into()) };
        let above = self.directory(above, 0o755)?;
        rustix::fs::mkdirat(&above, &name[..], Mode::from_raw_mode(0o700))?;
        let made = open_directory(above.as_fd(), name)?;
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
        Ok(made)
    }

    fn above(&mut self, parts: &[Vec<u8>]) -> io::Result<OwnedFd> {
        if let Some((known, directory)) = &self.above
            && known == parts
        {
            return directory.try_clone();
        }
        let directory = self.directory(parts, 0o755)?;
        self.above = Some((parts.to_vec(), directory.try_clone()?));
        Ok(directory)
    }

    fn enter(&mut self, entry: &Entry) -> io::Result<()> {
        let Some((name, above)) = entry.parts.split_last() else { return Ok(()) };
        match &entry.kind {
            EntryKind::Directory => {
                // Its owner must be able to go on working in it.
                let mode = (entry.mode & self.modes & 0o777) | 0o700;
                let made = self.directory(&entry.parts, mode)?;
                rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
                self.carried.directories += 1;
            }
            EntryKind::Symlink(target) => {
                let above = self.above(above)?;
                rustix::fs::symlinkat(&target[..], &above, &name[..])?;
                self.carried.links += 1;
            }
            EntryKind::File(size) => {
                let above = self.above(above)?;
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&above, &name[..], flags, Mode::from_raw_mode(0o600))?;
                self.carried.files += 1;
                self.carried.bytes += size;
                let mode = entry.mode & self.modes & 0o777;
                self.writing = Some(Writing { file, mode, modified: entry.modified });
            }
        }
        Ok(())
    }
}

impl Sink for Scratch {
    type Error = UnpackError;

    fn begin(&mut self, entry: Entry) -> Result<(), UnpackError> {
        self.enter(&entry).map_err(|error| {
            let path = String::from_utf8_lossy(&entry.parts.join(&b'/')).into_owned();
            match rustix::io::Errno::from_io_error(&error) {
                // Two entries of one name, or one below a file or link of the archive: a trick, or damage.
                Some(rustix::io::Errno::EXIST | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                    TarError::Name(path, "it is there twice, or below something that is no directory").into()
                }
                _ => failed(format!("write {path}"))(error),
            }
        })
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), UnpackError> {
        let Some(writing) = &self.writing else { return Err(TarError::NotAnArchive.into()) };
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = rustix::io::write(&writing.file, rest)
                .map_err(|error| failed("write a file")(error.into()))?;
            rest = &rest[count..];
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), UnpackError> {
        let Some(Writing { file, mode, modified }) = self.writing.take() else { return Ok(()) };
        let time = Timespec { tv_sec: modified, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        // A time is nothing to fail for.
        rustix::fs::futimens(&file, &times).ok();
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
            .map_err(|error| failed("set a mode")(error.into()))
    }
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
