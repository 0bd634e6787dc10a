//! The manifest of a tree: entries with the hash of every file. Two sides compare them before a transfer.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;
use sha2::{Digest, Sha256};

use crate::walk::{Kind, Walker};

/// Buffer size.
const PIECE: usize = 256 * 1024;

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Relative to the top.
    pub path: Vec<u8>,
    /// The file type.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// Hash of a file's contents; `None` if it cannot be read.
    pub hash: Option<[u8; 32]>,
}

/// Cached hashes of files, by path. A file whose metadata is unchanged is not read again.
#[derive(Debug, Clone, Default)]
pub struct HashCache(HashMap<Vec<u8>, (FileStamp, [u8; 32])>);

/// The metadata of a file: device, inode, size, mtime and ctime.
type FileStamp = (u64, u64, i64, i64, i64, i64, i64);

/// A file changed this recently may change again without different timestamps.
const TOO_FRESH: Duration = Duration::from_millis(50);

fn stamp_of(stat: &Stat) -> FileStamp {
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
    look: Option<FileStamp>,
    file: OwnedFd,
    entry: ManifestEntry,
    digest: Sha256,
    at: u64,
}

/// A manifest, built in small steps.
pub struct Manifest {
    walker: Walker,
    hashing: Option<Hashing>,
    buffer: Vec<u8>,
    /// A sparse file with a larger size is not read.
    sparse_limit: u64,
    known: HashCache,
    learned: HashCache,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Manifest").field("walker", &self.walker).finish_non_exhaustive()
    }
}

/// The result of one step.
#[derive(Debug)]
pub enum ManifestStep {
    /// An entry.
    Entry(ManifestEntry),
    /// A file is being read; there is more to do.
    More,
    /// Complete.
    Done,
}

impl Manifest {
    /// Of the tree below an open directory.
    pub fn new(top: OwnedFd, sparse_limit: u64) -> io::Result<Self> {
        let (known, learned) = (HashCache::default(), HashCache::default());
        Ok(Self {
            walker: Walker::new(top)?,
            hashing: None,
            buffer: Vec::new(),
            sparse_limit,
            known,
            learned,
        })
    }

    /// Uses cached hashes.
    #[must_use]
    pub fn knowing(mut self, known: HashCache) -> Self {
        self.known = known;
        self
    }

    /// The updated cache.
    #[must_use]
    pub fn learned(self) -> HashCache {
        self.learned
    }

    /// The directory of the last entry.
    #[must_use]
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.walker.directory()
    }

    /// Skips the contents of the last entry.
    pub fn skip(&mut self) {
        self.walker.skip();
    }

    /// Does one step.
    pub fn step(&mut self) -> ManifestStep {
        if let Some(hashing) = self.hashing.take() {
            return self.hash(hashing);
        }
        let Some(found) = self.walker.step() else { return ManifestStep::Done };
        let size = u64::try_from(found.stat.st_size).unwrap_or(0);
        let (path, kind, mode) = (found.path.clone(), found.kind, found.stat.st_mode & 0o7777);
        let entry = ManifestEntry { path, kind, mode, size, hash: None };
        if kind != Kind::File || is_sparse(&found.stat, self.sparse_limit) {
            return ManifestStep::Entry(entry);
        }
        let look = stamp_of(&found.stat);
        if let Some((_, hash)) = self.known.0.get(&entry.path).filter(|(known, _)| *known == look) {
            self.learned.0.insert(entry.path.clone(), (look, *hash));
            return ManifestStep::Entry(ManifestEntry { hash: Some(*hash), ..entry });
        }
        match self.walker.open(&found) {
            // Checked on the opened file: the name may refer to another one by now.
            Ok((_, stat)) if is_sparse(&stat, self.sparse_limit) => ManifestStep::Entry(entry),
            Ok((file, stat)) => {
                let look = (!is_fresh(&stat)).then(|| stamp_of(&stat));
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                let entry = ManifestEntry { size, ..entry };
                self.hash(Hashing { look, file, entry, digest: Sha256::new(), at: 0 })
            }
            Err(_) => ManifestStep::Entry(entry),
        }
    }

    fn hash(&mut self, mut hashing: Hashing) -> ManifestStep {
        self.buffer.resize(PIECE, 0);
        // Up to the size when it was found: a growing file would never end.
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

/// Whether a file has more than `limit` bytes, and more than are allocated on disk.
pub(crate) fn is_sparse(stat: &Stat, limit: u64) -> bool {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    size > limit && allocated < size
}
