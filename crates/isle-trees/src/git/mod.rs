//! Git directories in trees from a sandbox. Files in such a directory can make git run programs (hooks,
//! filters, file system monitors), so they are not copied to the host: only objects and refs are, by a fetch.

#[cfg(feature = "host")]
mod bundle;
#[cfg(feature = "host")]
mod fetch;
#[cfg(feature = "host")]
mod program;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::manifest::ManifestEntry;

#[cfg(feature = "host")]
pub use bundle::{BUNDLE_SCRIPT, Bundled, GitError};
#[cfg(feature = "host")]
pub use fetch::{BundleFile, FetchedRef, FetchedRepository, RefOutcome};

/// How git directories in a tree are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GitDirs {
    /// Skipped, and listed in the result.
    #[default]
    Skip,
    /// Copied like everything else, including what git would run.
    Copy,
}

/// Maximum number of listed git directories.
const NAMED: usize = 100;

/// Skipped git directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkippedGitDirs {
    /// The first of them, relative to the top; an empty path is the top.
    pub named: Vec<Vec<u8>>,
    /// How many there were.
    pub count: u64,
}

impl SkippedGitDirs {
    pub(crate) fn add(&mut self, path: &[u8]) {
        if self.named.iter().any(|known| known == path) {
            return;
        }
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(path.to_vec());
        }
    }
}

/// Whether git treats this name as `.git` on any file system: in other letter case, with characters that HFS+
/// ignores, and in the short forms of NTFS.
#[must_use]
pub fn is_git_name(name: &[u8]) -> bool {
    if !name.iter().any(|byte| matches!(byte, b'g' | b'G')) {
        return false;
    }
    plain(name).split('\\').any(|part| {
        let part = part.split(':').next().unwrap_or(part).trim_end_matches([' ', '.']);
        part == ".git"
            || part.strip_prefix("git~").is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
            })
    })
}

/// A name in the form of the file systems with the loosest comparison.
fn plain(name: &[u8]) -> String {
    let letters = String::from_utf8_lossy(name);
    letters
        .chars()
        .filter(|&letter| !is_ignored_by_hfs(letter))
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

fn is_ignored_by_hfs(letter: char) -> bool {
    matches!(letter, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// The names by which git recognizes a bare repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    head: bool,
    objects: bool,
    refs: bool,
    common: bool,
}

/// The names themselves.
pub(crate) const MARKS: [&[u8]; 4] = [b"HEAD", b"objects", b"refs", b"commondir"];

impl Marks {
    pub(crate) fn see(&mut self, name: &[u8]) {
        match plain(name).as_str() {
            "head" => self.head = true,
            "objects" => self.objects = true,
            "refs" => self.refs = true,
            "commondir" => self.common = true,
            _ => {}
        }
    }

    /// Whether git would treat a directory with these names as a repository. File contents are not checked:
    /// they can change with the next copy.
    pub(crate) fn make_a_repository(self) -> bool {
        self.head && (self.common || (self.objects && self.refs))
    }
}

/// Whether git reads a file of this name to recognize a repository.
pub(crate) fn is_head_name(name: &[u8]) -> bool {
    plain(name) == "head"
}

/// Whether the contents of `HEAD` make its directory a repository.
pub(crate) fn is_head(contents: &[u8]) -> bool {
    let text = contents.trim_ascii_start();
    let is_name =
        text.strip_prefix(b"ref:").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"refs/"));
    is_name || (text.len() >= 40 && text[..40].iter().all(u8::is_ascii_hexdigit))
}

/// The git directories of a tree, outermost only.
#[must_use]
pub fn git_directories(entries: &[ManifestEntry]) -> Vec<Vec<u8>> {
    let mut marks: std::collections::BTreeMap<&[u8], Marks> = std::collections::BTreeMap::new();
    let mut found: BTreeSet<Vec<u8>> = BTreeSet::new();
    for entry in entries {
        let (above, name) = split(&entry.path);
        if is_git_name(name) {
            found.insert(entry.path.clone());
        } else {
            let mut mark = Marks::default();
            mark.see(name);
            if mark != Marks::default() {
                marks.entry(above).or_default().see(name);
            }
        }
    }
    found.extend(marks.iter().filter(|(_, marks)| marks.make_a_repository()).map(|(path, _)| path.to_vec()));
    let all: Vec<Vec<u8>> = found.iter().cloned().collect();
    all.into_iter().filter(|path| !above(path).any(|above| found.contains(above))).collect()
}

/// Whether a path is the `.git` of a directory.
#[must_use]
pub fn is_git_of(path: &[u8], directory: &[u8]) -> bool {
    split(path) == (directory, &b".git"[..])
}

/// Maximum number of repositories fetched by one pull.
const MOST_FETCHED: usize = 64;

/// The directories of a tree whose skipped `.git` can be fetched.
#[must_use]
pub fn fetchable(entries: &[ManifestEntry], skipped: &SkippedGitDirs) -> Vec<Vec<u8>> {
    let is_directory = |path: &[u8]| {
        entries.iter().any(|entry| entry.path == path && entry.kind == crate::walk::Kind::Directory)
    };
    let git = skipped.named.iter().filter(|path| split(path).1 == b".git" && is_directory(path));
    git.map(|path| split(path).0.to_vec()).take(MOST_FETCHED).collect()
}

/// Whether a component of a path is a form of `.git`.
#[must_use]
pub fn has_git_name(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(is_git_name)
}

/// Whether a path is one of these directories or below one.
#[must_use]
pub fn is_within(path: &[u8], directories: &[Vec<u8>]) -> bool {
    directories.iter().any(|directory| {
        directory.is_empty()
            || path.strip_prefix(&directory[..]).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    })
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// The directories above a path, the top included.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let cuts = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
    let top = (!path.is_empty()).then_some(&b""[..]);
    top.into_iter().chain(cuts)
}

/// Whether a path of the host is a git directory or in one; the path need not exist.
#[must_use]
pub fn is_in_git_directory(path: &Path) -> bool {
    let named = |path: &Path| path.components().any(|part| is_git_name(part.as_os_str().as_bytes()));
    let real = path.ancestors().find_map(|part| {
        let part = if part.as_os_str().is_empty() { Path::new(".") } else { part };
        part.canonicalize().ok()
    });
    named(path) || real.is_some_and(|real| named(&real) || real.ancestors().any(is_repository))
}

fn is_repository(directory: &Path) -> bool {
    let mut marks = Marks::default();
    for name in MARKS {
        if directory.join(std::ffi::OsStr::from_bytes(name)).symlink_metadata().is_ok() {
            marks.see(name);
        }
    }
    marks.make_a_repository()
}

/// Whether a file of this name would turn the directory into a repository.
#[must_use]
pub fn completes_git_directory(directory: &Path, name: &[u8]) -> bool {
    let mut marks = Marks::default();
    marks.see(name);
    if marks == Marks::default() {
        return false;
    }
    for mark in MARKS {
        if directory.join(std::ffi::OsStr::from_bytes(mark)).symlink_metadata().is_ok() {
            marks.see(mark);
        }
    }
    marks.make_a_repository()
}

#[cfg(test)]
mod tests;
