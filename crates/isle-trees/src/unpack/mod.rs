//! Unpacking an archive into a directory. Everything is written to a staging directory inside it first and
//! moved into place when the archive is complete and valid, so that an invalid or truncated archive changes
//! nothing.

mod merge;
mod staging;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use isle_wire::Carried;
use rustix::fs::{Mode, OFlags, Timespec, Timestamps};

use crate::directories::{open_directory, remove_tree};
use crate::git::{GitDirs, SkippedGitDirs, is_git_name};
use crate::host_checks::{self, UnpackedTree};
use crate::skipped_comments::learn;
use crate::tar::{Entry, EntryKind, Reader, Sink, TarError};
use crate::unpack::merge::{check, merge};
use crate::unpack::staging::{make_scratch, sweep};
use crate::walk::open_beneath;

pub use crate::unpack::staging::StagingDir;

/// Prefix of the names of staging directories.
pub(crate) const SCRATCH: &[u8] = b".isle-unpack-";
/// Maximum depth of trees that are removed or merged.
pub(crate) const DEEPEST: usize = 256;

/// Limits of an archive.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Maximum number of entries.
    pub entries: u64,
    /// Maximum size of all files.
    pub bytes: u64,
    /// Mask of permission bits.
    pub modes: u32,
}

/// Why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The archive is not valid.
    #[error(transparent)]
    Archive(#[from] TarError),
    /// Writing failed.
    #[error("{doing}: {error}")]
    Io {
        /// The operation.
        doing: String,
        /// The error.
        error: io::Error,
    },
    /// A directory exists where a file is unpacked, or vice versa.
    #[error("{path:?} is {found}; cannot replace it by {due}")]
    InTheWay {
        /// The path.
        path: String,
        /// The existing type.
        found: &'static str,
        /// The new type.
        due: &'static str,
    },
    /// The whole tree is a git directory.
    #[error("it is a git directory, whose files can make git run programs")]
    GitDirectory,
}

pub(crate) fn failed(doing: impl Into<String>) -> impl FnOnce(io::Error) -> UnpackError {
    let doing = doing.into();
    move |error| UnpackError::Io { doing, error }
}

#[derive(Debug)]
struct Writing {
    file: OwnedFd,
    mode: u32,
    modified: i64,
}

/// Writes entries below the staging directory.
#[derive(Debug)]
struct Scratch {
    top: OwnedFd,
    /// How git directories are handled, if the host unpacks files of a sandbox.
    on_host: Option<GitDirs>,
    git: SkippedGitDirs,
    /// The current entry is skipped.
    passing: bool,
    /// Cached directory of the last entry.
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
        let scratch = Scratch {
            top,
            on_host: None,
            git: SkippedGitDirs::default(),
            passing: false,
            above: None,
            writing: None,
            modes: bounds.modes,
            carried: Carried::default(),
        };
        Ok(Self { target, name, reader: Reader::new(bounds.entries, bounds.bytes), scratch })
    }

    /// Unpacks files of a sandbox on the host: without symbolic links, and without git directories unless
    /// requested.
    pub fn on_host(target: OwnedFd, bounds: Bounds, git_dirs: GitDirs) -> io::Result<Self> {
        let mut unpacker = Self::new(target, bounds)?;
        unpacker.scratch.on_host = Some(git_dirs);
        Ok(unpacker)
    }

    /// The next bytes of the archive.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), UnpackError> {
        self.reader.feed(bytes, &mut self.scratch)
    }

    /// What was unpacked so far.
    #[must_use]
    pub fn carried(&self) -> &Carried {
        &self.scratch.carried
    }

    /// The archive has ended: moves everything into place.
    pub fn finish(self) -> Result<Carried, UnpackError> {
        Ok(self.finish_on_host()?.carried)
    }

    /// The same, with what the host skipped and what should be reviewed.
    pub fn finish_on_host(mut self) -> Result<UnpackedTree, UnpackError> {
        self.reader.finish()?;
        let mut arrived = UnpackedTree {
            carried: std::mem::take(&mut self.scratch.carried),
            git: std::mem::take(&mut self.scratch.git),
            ..UnpackedTree::default()
        };
        let (scratch, target) = (self.scratch.top.as_fd(), self.target.as_fd());
        if self.scratch.on_host == Some(GitDirs::Skip) {
            host_checks::leave_out_git(scratch, target, &mut arrived)?;
        }
        check(scratch, target, &mut Vec::new(), 0)?;
        if self.scratch.on_host.is_some() {
            host_checks::review(scratch, target, &mut arrived)
                .map_err(failed("inspect the unpacked files"))?;
        }
        merge(scratch, target, 0).map_err(failed("move the files into place"))?;
        learn(&mut arrived.carried, self.reader.comments());
        Ok(arrived)
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        // Remaining files are discarded; if they cannot be removed, the next unpacking tries again.
        drop(remove_tree(self.target.as_fd(), &self.name));
    }
}

impl Scratch {
    /// Opens the directory with these components, creating it if missing.
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

    /// Whether an entry is skipped; records it.
    fn leaves_out(&mut self, entry: &Entry) -> bool {
        let Some(git_dirs) = self.on_host else { return false };
        if git_dirs == GitDirs::Skip
            && let Some(at) = entry.parts.iter().position(|part| is_git_name(part))
        {
            self.git.add(&entry.parts[..=at].join(&b'/'));
            return true;
        }
        // The packer sends none.
        let is_link = matches!(entry.kind, EntryKind::Symlink(_));
        if is_link {
            self.carried.skip(&entry.parts.join(&b'/'), "it is a symbolic link");
        }
        is_link
    }

    fn enter(&mut self, entry: &Entry) -> io::Result<()> {
        let Some((name, above)) = entry.parts.split_last() else { return Ok(()) };
        match &entry.kind {
            EntryKind::Directory => {
                // The owner must be able to use it.
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
        self.passing = self.leaves_out(&entry);
        if self.passing {
            return Ok(());
        }
        self.enter(&entry).map_err(|error| {
            let path = String::from_utf8_lossy(&entry.parts.join(&b'/')).into_owned();
            match rustix::io::Errno::from_io_error(&error) {
                // Two entries of one name, or one below a file or symbolic link of the archive: an attack, or
                // damage.
                Some(rustix::io::Errno::EXIST | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                    TarError::Name(path, "it occurs twice, or its parent is not a directory").into()
                }
                _ => failed(format!("write {path}"))(error),
            }
        })
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), UnpackError> {
        if self.passing {
            return Ok(());
        }
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
        // A failure to set the time is ignored.
        rustix::fs::futimens(&file, &times).ok();
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
            .map_err(|error| failed("set a mode")(error.into()))
    }
}

#[cfg(test)]
mod tests;
