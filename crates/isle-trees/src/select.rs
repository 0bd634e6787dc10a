//! Which files of a tree belong to it: `.gitignore` files as git reads them, patterns of the caller
//! before them, and `.git` only when it is wanted.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;

use crate::manifest::{Known, Manifest, ManifestEntry, ManifestStep};
use crate::pack::is_scratch;
use crate::walk::{Kind, open_beneath};

/// Larger files of the host that are mostly holes are not read.
const HOLLOW: u64 = 1 << 30;

/// What the caller wants.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Patterns of files that stay where they are, in the form of `.gitignore`; they count most.
    pub exclude: Vec<String>,
    /// With the `.git` directory.
    pub git: bool,
    /// With what `.gitignore` files leave out.
    pub ignored: bool,
}

/// A pattern that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{pattern:?} is not a pattern: {why}")]
pub struct SelectError {
    /// Which.
    pub pattern: String,
    /// Why.
    pub why: String,
}

/// Decides about paths. Ignore files are added as they are found, outer ones first.
#[derive(Debug)]
pub struct Selector {
    own: Gitignore,
    files: Vec<(PathBuf, Gitignore)>,
    git: bool,
    ignored: bool,
}

impl Selector {
    /// Reads the caller's patterns.
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

    /// Whether the contents of this file decide about others.
    #[must_use]
    pub fn wants(&self, path: &[u8]) -> bool {
        !self.ignored && (path == b".gitignore" || path.ends_with(b"/.gitignore"))
    }

    /// Adds the ignore file at a path. Lines that are no patterns are passed over, as git does.
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

    /// Whether a path stays out. What is in a directory that stays out need not be asked for.
    #[must_use]
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        if is_scratch(name) || (name == b".git" && !self.git) {
            return true;
        }
        let rooted = rooted(path);
        match self.own.matched(&rooted, is_directory) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => {}
        }
        // The innermost file that says something decides.
        let says = self.files.iter().rev().filter(|(directory, _)| rooted.starts_with(directory)).find_map(
            |(_, rules)| match rules.matched(&rooted, is_directory) {
                Match::Ignore(_) => Some(true),
                Match::Whitelist(_) => Some(false),
                Match::None => None,
            },
        );
        says.unwrap_or(false)
    }

    /// Those of a manifest that belong to the tree, and how many do not.
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

/// Whose ignore files count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Those of the tree itself.
    FromTree,
    /// Those the selector was given.
    Given,
}

/// What belongs to a tree of the host.
#[derive(Debug)]
pub struct Chosen {
    /// The entries that do.
    pub entries: Vec<ManifestEntry>,
    /// How many do not; what a directory holds that stays out is not counted.
    pub left_out: u64,
    /// Hashes, for the next time.
    pub known: Known,
}

/// Describes a tree of the host; ignore files are read on the way. What stays out is not entered.
pub fn host_manifest(
    top: OwnedFd,
    selector: &mut Selector,
    known: Known,
    rules: Rules,
) -> io::Result<Chosen> {
    if rules == Rules::FromTree {
        selector.files.clear();
        read_rules(selector, top.as_fd(), b"");
    }
    let outer = top.try_clone()?;
    let mut manifest = Manifest::new(top, HOLLOW)?.knowing(known);
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

/// Reads the ignore file of a directory, if there is one of reasonable size.
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
mod tests {
    use super::*;

    fn selector(exclude: &[&str], git: bool) -> Selector {
        let exclude = exclude.iter().map(|&pattern| pattern.to_owned()).collect();
        Selector::new(&Selection { exclude, git, ignored: false }).unwrap()
    }

    #[test]
    fn patterns_mean_what_they_mean_to_git() {
        let mut selector = selector(&["/top", "!keep.log"], false);
        selector.add(b".gitignore", b"*.log\nbuild/\n.venv\n# not a pattern\n/only-here\n");
        selector.add(b"sub/.gitignore", b"!special.tmp\n*.tmp\n!kept.tmp\n");
        for (path, is_directory, expected) in [
            ("a.log", false, true),
            ("deep/a.log", false, true),
            ("keep.log", false, false),
            ("build", true, true),
            ("build", false, false),
            (".venv", true, true),
            ("sub/.venv", true, true),
            ("only-here", false, true),
            ("sub/only-here", false, false),
            ("top", false, true),
            ("sub/top", false, false),
            ("sub/x.tmp", false, true),
            ("x.tmp", false, false),
            ("sub/kept.tmp", false, false),
            ("sub/special.tmp", false, true),
            (".git", true, true),
            ("sub/.git", true, true),
            (".gitignore", false, false),
            (".pytest_cache", true, false),
        ] {
            assert_eq!(selector.leaves_out(path.as_bytes(), is_directory), expected, "{path}");
        }
    }

    #[test]
    fn a_tree_of_the_host_is_described_without_what_stays_out() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for directory in ["target/deep", ".git", "sub"] {
            std::fs::create_dir_all(at(directory)).unwrap();
        }
        for (path, text) in [
            (".gitignore", "target/\n"),
            ("a", "a"),
            ("target/deep/x", "x"),
            (".git/config", "c"),
            ("sub/.gitignore", "*.tmp\n"),
            ("sub/.a.tmp", "t"),
            ("sub/b", "b"),
        ] {
            std::fs::write(at(path), text).unwrap();
        }
        let open = || {
            rustix::fs::open(place.path(), OFlags::RDONLY | OFlags::DIRECTORY, rustix::fs::Mode::empty())
                .unwrap()
        };
        let mut selector = selector(&[], false);
        let chosen = host_manifest(open(), &mut selector, Known::default(), Rules::FromTree).unwrap();
        let paths: Vec<_> =
            chosen.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect();
        assert_eq!(paths, [".gitignore", "a", "sub", "sub/.gitignore", "sub/b"]);
        assert_eq!(chosen.left_out, 3);
        std::fs::write(at("a"), "b").unwrap();
        let again = host_manifest(open(), &mut selector, chosen.known, Rules::FromTree).unwrap();
        assert_ne!(again.entries[1].hash, chosen.entries[1].hash, "a change of the same size is seen");
        assert_eq!(again.entries[4].hash, chosen.entries[4].hash);
    }

    #[test]
    fn git_comes_by_switch_and_dot_directories_match_with_their_dot() {
        assert!(!selector(&[], true).leaves_out(b".git", true));
        let dots = selector(&[".venv/", ".cache"], true);
        assert!(dots.leaves_out(b".venv", true) && dots.leaves_out(b"x/.cache", false));
        assert!(!dots.leaves_out(b"venv", true));
        assert!(Selector::new(&Selection { exclude: vec!["[z-a]".into()], ..Selection::default() }).is_err());
    }
}
