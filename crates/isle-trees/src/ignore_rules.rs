//! Which files of a tree are included: `.gitignore` files as in git, patterns of the caller with precedence,
//! and `.git` only on request.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;

use crate::git::is_git_name;
use crate::manifest::{HashCache, Manifest, ManifestEntry, ManifestStep};
use crate::pack::is_scratch;
use crate::walk::{Kind, open_beneath};

/// Larger sparse files of the host are not read.
const SPARSE_LIMIT: u64 = 1 << 30;

/// The options of the caller.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Patterns of excluded files, in the format of `.gitignore`; they take precedence.
    pub exclude: Vec<String>,
    /// Include the `.git` directory.
    pub git: bool,
    /// Include what `.gitignore` files exclude.
    pub ignored: bool,
}

/// A pattern that is not valid.
#[derive(Debug, thiserror::Error)]
#[error("{pattern:?} is not a valid pattern: {why}")]
pub struct SelectError {
    /// The pattern.
    pub pattern: String,
    /// The reason.
    pub why: String,
}

/// Decides which paths are included. Ignore files are added as they are found, outer ones first.
#[derive(Debug)]
pub struct Selector {
    own: Gitignore,
    files: Vec<(PathBuf, Gitignore)>,
    git: bool,
    ignored: bool,
}

impl Selector {
    /// Parses the caller's patterns.
    pub fn new(selection: &Selection) -> Result<Self, SelectError> {
        let mut builder = GitignoreBuilder::new("/");
        let refuse = |pattern: &str, error: ignore::Error| SelectError {
            pattern: pattern.to_owned(),
            why: error.to_string(),
        };
        for pattern in &selection.exclude {
            builder.add_line(None, pattern).map_err(|error| refuse(pattern, error))?;
        }
        let own = builder.build().map_err(|error| refuse("the patterns", error))?;
        Ok(Self { own, files: Vec::new(), git: selection.git, ignored: selection.ignored })
    }

    /// Whether this is an ignore file to read.
    #[must_use]
    pub fn wants(&self, path: &[u8]) -> bool {
        !self.ignored && (path == b".gitignore" || path.ends_with(b"/.gitignore"))
    }

    /// Adds the ignore file at a path. Lines that are not valid are skipped, as in git.
    pub fn add(&mut self, path: &[u8], contents: &[u8]) {
        let directory = rooted(path.strip_suffix(b".gitignore").unwrap_or_default());
        let mut builder = GitignoreBuilder::new(&directory);
        for line in String::from_utf8_lossy(contents).lines() {
            drop(builder.add_line(None, line));
        }
        if let Ok(rules) = builder.build() {
            self.files.push((directory, rules));
        }
    }

    /// Whether a path is excluded. The contents of an excluded directory are not checked.
    #[must_use]
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        if is_scratch(name) || (!self.git && is_git_name(name)) {
            return true;
        }
        let rooted = rooted(path);
        match self.own.matched(&rooted, is_directory) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => {}
        }
        // The innermost ignore file with a match decides.
        let says = self.files.iter().rev().filter(|(directory, _)| rooted.starts_with(directory)).find_map(
            |(_, rules)| match rules.matched(&rooted, is_directory) {
                Match::Ignore(_) => Some(true),
                Match::Whitelist(_) => Some(false),
                Match::None => None,
            },
        );
        says.unwrap_or(false)
    }

    /// The included entries of a manifest, and the number of excluded ones.
    #[must_use]
    pub fn choose(&self, entries: Vec<ManifestEntry>) -> (Vec<ManifestEntry>, u64) {
        let mut left_out: Vec<Vec<u8>> = Vec::new();
        let mut count = 0;
        let chosen = entries
            .into_iter()
            .filter(|entry| {
                let within = left_out.last().is_some_and(|directory| {
                    entry.path.strip_prefix(&directory[..]).is_some_and(|rest| rest.starts_with(b"/"))
                });
                let is_directory = entry.kind == Kind::Directory;
                let out = within || self.leaves_out(&entry.path, is_directory);
                if out {
                    count += 1;
                    if is_directory && !within {
                        left_out.push(entry.path.clone());
                    }
                }
                !out
            })
            .collect();
        (chosen, count)
    }
}

/// Which ignore files apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Those of the tree.
    FromTree,
    /// Those already added to the selector.
    Given,
}

/// The included files of a tree of the host.
#[derive(Debug)]
pub struct Chosen {
    /// The included entries.
    pub entries: Vec<ManifestEntry>,
    /// The number of excluded entries, without the contents of excluded directories.
    pub left_out: u64,
    /// The hash cache for the next time.
    pub known: HashCache,
}

/// Creates the manifest of a tree of the host, reading its ignore files. Excluded directories are not
/// entered.
pub fn host_manifest(
    top: OwnedFd,
    selector: &mut Selector,
    known: HashCache,
    rules: Rules,
) -> io::Result<Chosen> {
    if rules == Rules::FromTree {
        selector.files.clear();
        read_rules(selector, top.as_fd(), b"");
    }
    let outer = top.try_clone()?;
    let mut manifest = Manifest::new(top, SPARSE_LIMIT)?.knowing(known);
    let (mut entries, mut left_out) = (Vec::new(), 0);
    loop {
        match manifest.step() {
            ManifestStep::Done => break,
            ManifestStep::More => {}
            ManifestStep::Entry(entry) => {
                let is_directory = entry.kind == Kind::Directory;
                if selector.leaves_out(&entry.path, is_directory) {
                    manifest.skip();
                    left_out += 1;
                    continue;
                }
                if is_directory && rules == Rules::FromTree {
                    read_rules(selector, outer.as_fd(), &entry.path);
                }
                entries.push(entry);
            }
        }
    }
    Ok(Chosen { entries, left_out, known: manifest.learned() })
}

/// Reads the ignore file of a directory, if there is one.
fn read_rules(selector: &mut Selector, top: BorrowedFd<'_>, directory: &[u8]) {
    const LONGEST: usize = 1 << 20;
    let path =
        if directory.is_empty() { b".gitignore".to_vec() } else { [directory, b"/.gitignore"].concat() };
    if !selector.wants(&path) {
        return;
    }
    let Ok(file) = open_beneath(top, &path, OFlags::RDONLY) else { return };
    let mut contents = Vec::new();
    let reader = std::fs::File::from(file);
    if io::Read::read_to_end(&mut io::Read::take(reader, LONGEST as u64), &mut contents).is_ok() {
        selector.add(&path, &contents);
    }
}

fn rooted(path: &[u8]) -> PathBuf {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    Path::new("/").join(OsStr::from_bytes(trimmed))
}

#[cfg(test)]
#[path = "ignore_rules_tests.rs"]
mod tests;
