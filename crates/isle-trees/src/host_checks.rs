//! Checks on the host before files of a sandbox are moved into place: git directories are removed, whether
//! they arrive complete or in parts, and files that run automatically are reported.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use isle_wire::Carried;
use rustix::fs::{AtFlags, OFlags};

use crate::auto_run::{EXECUTABLE, Review, auto_run_reason};
use crate::directories::{look, names, open_directory, remove_tree};
use crate::git::{MARKS, Marks, SkippedGitDirs, git_directories, is_within};
use crate::manifest::ManifestEntry;
use crate::unpack::{DEEPEST, UnpackError, failed};
use crate::walk::{Kind, kind_of, open_beneath};

/// Larger files count as changed without a comparison.
const COMPARED: u64 = 4 << 20;

/// A tree that was unpacked on the host.
#[derive(Debug, Clone, Default)]
pub struct UnpackedTree {
    /// What was unpacked, and what the sandbox skipped.
    pub carried: Carried,
    /// Git directories that were removed.
    pub git: SkippedGitDirs,
    /// Files to review.
    pub review: Review,
}

/// Removes git directories from a manifest.
#[must_use]
pub fn leave_out_git_entries(entries: Vec<ManifestEntry>) -> (Vec<ManifestEntry>, SkippedGitDirs) {
    let directories = git_directories(&entries);
    let mut skipped = SkippedGitDirs::default();
    directories.iter().for_each(|path| skipped.add(path));
    let rest = entries.into_iter().filter(|entry| !is_within(&entry.path, &directories)).collect();
    (rest, skipped)
}

/// Removes what would be a git directory at its destination. Only names are checked, both existing and new
/// ones, so that a repository cannot arrive in parts.
pub(crate) fn leave_out_git(
    scratch: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    arrived: &mut UnpackedTree,
) -> Result<(), UnpackError> {
    let looking = failed("inspect the unpacked files");
    if is_repository(scratch, Some(target)).map_err(looking)? {
        return Err(UnpackError::GitDirectory);
    }
    below(scratch, Some(target), &mut Vec::new(), arrived).map_err(failed("remove git directories"))
}

fn is_repository(scratch: BorrowedFd<'_>, target: Option<BorrowedFd<'_>>) -> io::Result<bool> {
    let mut marks = Marks::default();
    for name in names(scratch)? {
        marks.see(&name);
    }
    for name in MARKS {
        if let Some(target) = target
            && look(target, name)?.is_some()
        {
            marks.see(name);
        }
    }
    Ok(marks.make_a_repository())
}

fn below(
    scratch: BorrowedFd<'_>,
    target: Option<BorrowedFd<'_>>,
    path: &mut Vec<Vec<u8>>,
    arrived: &mut UnpackedTree,
) -> io::Result<()> {
    if path.len() > DEEPEST {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    for name in names(scratch)? {
        if look(scratch, &name)? != Some(Kind::Directory) {
            continue;
        }
        let inner = open_directory(scratch, &name)?;
        let other = standing(target, &name)?;
        let other = other.as_ref().map(AsFd::as_fd);
        path.push(name);
        if is_repository(inner.as_fd(), other)? {
            arrived.git.add(&path.join(&b'/'));
            uncount(inner.as_fd(), &mut arrived.carried, 0)?;
            arrived.carried.directories = arrived.carried.directories.saturating_sub(1);
            remove_tree(scratch, path.last().map_or(&[], |name| &name[..]))?;
        } else {
            below(inner.as_fd(), other, path, arrived)?;
        }
        path.pop();
    }
    Ok(())
}

fn standing(target: Option<BorrowedFd<'_>>, name: &[u8]) -> io::Result<Option<OwnedFd>> {
    match target {
        Some(target) if look(target, name)? == Some(Kind::Directory) => {
            open_directory(target, name).map(Some)
        }
        _ => Ok(None),
    }
}

/// Subtracts what is removed.
fn uncount(directory: BorrowedFd<'_>, carried: &mut Carried, depth: usize) -> io::Result<()> {
    if depth > DEEPEST {
        return Ok(());
    }
    for name in names(directory)? {
        let stat = rustix::fs::statat(directory, &name[..], AtFlags::SYMLINK_NOFOLLOW)?;
        if kind_of(&stat) == Kind::Directory {
            carried.directories = carried.directories.saturating_sub(1);
            uncount(open_directory(directory, &name)?.as_fd(), carried, depth + 1)?;
        } else {
            carried.files = carried.files.saturating_sub(1);
            carried.bytes = carried.bytes.saturating_sub(u64::try_from(stat.st_size).unwrap_or(0));
        }
    }
    Ok(())
}

/// Reports new or changed files that run automatically, and files that became executable.
pub(crate) fn review(
    scratch: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    arrived: &mut UnpackedTree,
) -> io::Result<()> {
    compare(scratch, Some(target), &mut Vec::new(), arrived)
}

fn compare(
    scratch: BorrowedFd<'_>,
    target: Option<BorrowedFd<'_>>,
    path: &mut Vec<Vec<u8>>,
    arrived: &mut UnpackedTree,
) -> io::Result<()> {
    for name in names(scratch)? {
        let stat = rustix::fs::statat(scratch, &name[..], AtFlags::SYMLINK_NOFOLLOW)?;
        path.push(name);
        let name = path.last().map_or(&[][..], |name| &name[..]).to_vec();
        if kind_of(&stat) == Kind::Directory {
            let inner = open_directory(scratch, &name)?;
            let other = standing(target, &name)?;
            compare(inner.as_fd(), other.as_ref().map(AsFd::as_fd), path, arrived)?;
        } else {
            let before = target.and_then(|target| {
                rustix::fs::statat(target, &name[..], AtFlags::SYMLINK_NOFOLLOW)
                    .ok()
                    .map(|stat| (target, stat))
            });
            let whole = path.join(&b'/');
            let was_executable = before.as_ref().is_some_and(|(_, stat)| stat.st_mode & 0o111 != 0);
            match auto_run_reason(&whole) {
                Some(why)
                    if !before.as_ref().is_some_and(|(there, was)| {
                        was.st_size == stat.st_size && is_same(scratch, *there, &name, stat.st_size)
                    }) =>
                {
                    arrived.review.add(&whole, why)
                }
                _ if stat.st_mode & 0o111 != 0 && !was_executable => arrived.review.add(&whole, EXECUTABLE),
                _ => {}
            }
        }
        path.pop();
    }
    Ok(())
}

fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>, name: &[u8], size: i64) -> bool {
    if u64::try_from(size).map_or(true, |size| size > COMPARED) {
        return false;
    }
    let read = |directory: BorrowedFd<'_>| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = std::fs::File::from(open_beneath(directory, name, OFlags::RDONLY)?);
        file.take(COMPARED).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    matches!((read(one), read(other)), (Ok(one), Ok(other)) if one == other)
}
