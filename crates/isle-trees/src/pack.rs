//! Packing a tree into a tar archive, in small pieces on demand. Symbolic links, pipes and unreadable files
//! are skipped and reported.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use isle_wire::Carried;
use rustix::fs::{OFlags, Stat};

use crate::manifest::is_sparse;
use crate::skipped_comments::comments;
use crate::tar::{EntryKind, end, padding, write_comments, write_header};
use crate::walk::{Kind, WalkEntry, Walker, kind_of, open_beneath, open_regular};

/// Approximate size of one piece.
const PIECE: usize = 256 * 1024;
/// Maximum number of entries per piece: skipped ones produce no bytes.
const LOOKED_AT: usize = 500;

/// What is packed.
#[derive(Debug)]
pub struct PackOptions {
    /// A sparse file with a larger size is skipped.
    pub sparse_limit: u64,
    /// Only these paths, relative to the top; all when `None`.
    pub only: Option<Vec<Vec<u8>>>,
}

#[derive(Debug)]
enum Source {
    All(Walker),
    Listed { top: OwnedFd, paths: std::vec::IntoIter<Vec<u8>> },
}

#[derive(Debug)]
struct Open {
    file: OwnedFd,
    at: u64,
    size: u64,
}

/// Packs one tree.
#[derive(Debug)]
pub struct Packer {
    source: Source,
    open: Option<Open>,
    sparse_limit: u64,
    carried: Carried,
    ended: bool,
}

impl Packer {
    /// Packs what is below an open directory.
    pub fn new(top: OwnedFd, options: PackOptions) -> io::Result<Self> {
        let source = match options.only {
            None => Source::All(Walker::new(top)?),
            Some(paths) => Source::Listed { top, paths: paths.into_iter() },
        };
        Ok(Self {
            source,
            open: None,
            sparse_limit: options.sparse_limit,
            carried: Carried::default(),
            ended: false,
        })
    }

    /// What was packed so far.
    #[must_use]
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    /// The next bytes of the archive; `None` after its end.
    pub fn piece(&mut self) -> Option<Vec<u8>> {
        loop {
            let piece = self.step()?;
            if !piece.is_empty() {
                return Some(piece);
            }
        }
    }

    /// The same after a bounded amount of work, for those who have something else to do: there may be no
    /// bytes yet.
    pub fn step(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        let mut out = Vec::with_capacity(PIECE + 4096);
        for _ in 0..LOOKED_AT {
            if out.len() >= PIECE || self.ended {
                break;
            }
            match self.open.take() {
                Some(open) => self.read(open, &mut out),
                None => self.next_entry(&mut out),
            }
        }
        Some(out)
    }

    fn read(&mut self, mut open: Open, out: &mut Vec<u8>) {
        let (start, left) = (out.len(), open.size - open.at);
        let wanted = usize::try_from(left).unwrap_or(PIECE).min(PIECE.saturating_sub(start).max(4096));
        out.resize(start + wanted, 0);
        // The header promised so many bytes: what a file has lost meanwhile is zeros, what it has gained
        // is not sent.
        let count = rustix::io::pread(&open.file, &mut out[start..], open.at).unwrap_or(0);
        let count = if count == 0 { wanted } else { count };
        out.truncate(start + count);
        open.at += count as u64;
        if open.at < open.size {
            self.open = Some(open);
        } else {
            padding(out, open.size);
        }
    }

    fn next_entry(&mut self, out: &mut Vec<u8>) {
        let next = match &mut self.source {
            Source::All(walker) => walker.step().map(|found| {
                let opened = (found.kind == Kind::File).then(|| walker.open(&found));
                (found, opened)
            }),
            Source::Listed { top, paths } => loop {
                let Some(path) = paths.next() else { break None };
                // Gone meanwhile, or swapped for something else: not part of the tree.
                match look_at(top, &path) {
                    Ok(next) => break Some(next),
                    Err(error) => self.carried.skip(&path, reason(&error)),
                }
            },
        };
        let Some((found, opened)) = next else {
            if let Source::All(walker) = &self.source {
                let named = walker.unentered().len() as u64;
                for path in walker.unentered() {
                    self.carried.skip(path, "what is in it cannot be read, or lies too deep");
                }
                self.carried.skipped_count += walker.left_out().saturating_sub(named);
            }
            if self.carried.skipped_count > 0 {
                write_comments(out, &comments(&self.carried));
            }
            end(out);
            self.ended = true;
            return;
        };
        if is_scratch(&found.name) {
            if let Source::All(walker) = &mut self.source {
                walker.skip();
            }
            return;
        }
        match (found.kind, opened) {
            (Kind::Directory, _) => {
                self.carried.directories += 1;
                write_header(
                    out,
                    &found.path,
                    &EntryKind::Directory,
                    found.stat.st_mode,
                    found.stat.st_mtime,
                );
            }
            // Judged by the file that was opened: the name may mean another one since it was looked at.
            (Kind::File, Some(Ok((file, stat)))) if !is_sparse(&stat, self.sparse_limit) => {
                self.file(&found, file, &stat, out);
            }
            (Kind::File, Some(Err(error))) => self.carried.skip(&found.path, reason(&error)),
            (Kind::File, _) => self.carried.skip(&found.path, "it claims more than its disk holds"),
            (Kind::Symlink, _) => self.carried.skip(&found.path, "it is a link"),
            (Kind::Other, _) => self.carried.skip(&found.path, "it is neither file nor directory"),
        }
    }

    fn file(&mut self, found: &WalkEntry, file: OwnedFd, stat: &Stat, out: &mut Vec<u8>) {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.carried.files += 1;
        self.carried.bytes += size;
        write_header(out, &found.path, &EntryKind::File(size), stat.st_mode, stat.st_mtime);
        if size > 0 {
            self.open = Some(Open { file, at: 0, size });
        }
    }
}

/// Whether a name is that of a staging directory.
pub(crate) fn is_scratch(name: &[u8]) -> bool {
    name.starts_with(crate::unpack::SCRATCH)
}

type Looked = (WalkEntry, Option<io::Result<(OwnedFd, Stat)>>);

fn look_at(top: &OwnedFd, path: &[u8]) -> io::Result<Looked> {
    let cut = path.iter().rposition(|&byte| byte == b'/');
    let (above, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
    let directory = open_beneath(top.as_fd(), above, OFlags::PATH | OFlags::DIRECTORY)?;
    let stat = rustix::fs::statat(&directory, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = kind_of(&stat);
    let opened = (kind == Kind::File).then(|| open_regular(directory.as_fd(), name));
    Ok((WalkEntry { path: path.to_vec(), name: name.to_vec(), kind, stat }, opened))
}

fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "it may not be read",
        io::ErrorKind::NotFound => "it is gone",
        _ => "it cannot be read",
    }
}
