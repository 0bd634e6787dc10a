//! What a tree holds, with the hash of every file: what two sides compare before they send anything.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;
use sha2::{Digest, Sha256};

use crate::walk::{Found, Kind, Walker};

/// Read at once.
const PIECE: usize = 256 * 1024;

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Relative to the top.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// Of a file's contents; missing when it may not be read.
    pub hash: Option<[u8; 32]>,
}

/// Hashes of files as they were when they were last read, by path. A file that looks the same in every
/// respect is not read again.
#[derive(Debug, Clone, Default)]
pub struct Known(HashMap<Vec<u8>, (Look, [u8; 32])>);

/// How a file looks from outside: device, inode, size, and when it was changed and touched.
type Look = (u64, u64, i64, i64, i64, i64, i64);

/// A file that was changed so recently may be changed again without looking different.
const TOO_FRESH: Duration = Duration::from_millis(50);

fn look_of(stat: &Stat) -> Look {
    let nanoseconds = |value| i64::try_from(value).unwrap_or(0);
    (
        stat.st_dev,
        stat.st_ino,
        stat.st_size,
        stat.st_mtime,
        nanoseconds(stat.st_mtime_nsec),
        stat.st_ctime,
        nanoseconds(stat.st_ctime_nsec),
    )
}

fn is_fresh(stat: &Stat) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let changed = Duration::new(
        u64::try_from(stat.st_ctime).unwrap_or(0),
        u32::try_from(stat.st_ctime_nsec).unwrap_or(0),
    );
    changed + TOO_FRESH > now
}

struct Hashing {
    look: Option<Look>,
    file: OwnedFd,
    entry: ManifestEntry,
    digest: Sha256,
    at: u64,
}

/// A manifest on its way, made in small steps.
pub struct Manifest {
    walker: Walker,
    hashing: Option<Hashing>,
    buffer: Vec<u8>,
    /// A file with holes that claims more is not read.
    hollow: u64,
    known: Known,
    learned: Known,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Manifest").field("walker", &self.walker).finish_non_exhaustive()
    }
}

/// What one step gave.
#[derive(Debug)]
pub enum ManifestStep {
    /// An entry.
    Entry(ManifestEntry),
    /// A file is being read; there is more to do.
    More,
    /// That was all.
    Done,
}

impl Manifest {
    /// Of the tree below an open directory.
    pub fn new(top: OwnedFd, hollow: u64) -> io::Result<Self> {
        let (known, learned) = (Known::default(), Known::default());
        Ok(Self { walker: Walker::new(top)?, hashing: None, buffer: Vec::new(), hollow, known, learned })
    }

    /// Does not read again what is known.
    #[must_use]
    pub fn knowing(mut self, known: Known) -> Self {
        self.known = known;
        self
    }

    /// What is known now.
    #[must_use]
    pub fn learned(self) -> Known {
        self.learned
    }

    /// The directory that holds what was told last.
    #[must_use]
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.walker.directory()
    }

    /// Does not enter the directory that was told last.
    pub fn skip(&mut self) {
        self.walker.skip();
    }

    /// A little of the work.
    pub fn step(&mut self) -> ManifestStep {
        if let Some(hashing) = self.hashing.take() {
            return self.hash(hashing);
        }
        let Some(found) = self.walker.step() else { return ManifestStep::Done };
        let size = u64::try_from(found.stat.st_size).unwrap_or(0);
        let (path, kind, mode) = (found.path.clone(), found.kind, found.stat.st_mode & 0o7777);
        let entry = ManifestEntry { path, kind, mode, size, hash: None };
        if kind != Kind::File || is_hollow(&found, self.hollow) {
            return ManifestStep::Entry(entry);
        }
        let look = look_of(&found.stat);
        if let Some((_, hash)) = self.known.0.get(&entry.path).filter(|(known, _)| *known == look) {
            self.learned.0.insert(entry.path.clone(), (look, *hash));
            return ManifestStep::Entry(ManifestEntry { hash: Some(*hash), ..entry });
        }
        match self.walker.open(&found) {
            Ok((file, stat)) => {
                let look = (!is_fresh(&stat)).then(|| look_of(&stat));
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                let entry = ManifestEntry { size, ..entry };
                self.hash(Hashing { look, file, entry, digest: Sha256::new(), at: 0 })
            }
            Err(_) => ManifestStep::Entry(entry),
        }
    }

    fn hash(&mut self, mut hashing: Hashing) -> ManifestStep {
        self.buffer.resize(PIECE, 0);
        // As far as the file went when it was found: one that grows would never end.
        let wanted = usize::try_from(hashing.entry.size - hashing.at).unwrap_or(PIECE).min(PIECE);
        match rustix::io::pread(&hashing.file, &mut self.buffer[..wanted], hashing.at) {
            Ok(count) => {
                hashing.digest.update(&self.buffer[..count]);
                hashing.at += count as u64;
                if count > 0 && hashing.at < hashing.entry.size {
                    self.hashing = Some(hashing);
                    return ManifestStep::More;
                }
                let hash: [u8; 32] = hashing.digest.finalize().into();
                hashing.entry.hash = Some(hash);
                if let Some(look) = hashing.look {
                    self.learned.0.insert(hashing.entry.path.clone(), (look, hash));
                }
                ManifestStep::Entry(hashing.entry)
            }
            Err(_) => ManifestStep::Entry(hashing.entry),
        }
    }
}

pub(crate) fn is_hollow(found: &Found, limit: u64) -> bool {
    let size = u64::try_from(found.stat.st_size).unwrap_or(0);
    let allocated = u64::try_from(found.stat.st_blocks).unwrap_or(0).saturating_mul(512);
    size > limit && allocated < size
}
