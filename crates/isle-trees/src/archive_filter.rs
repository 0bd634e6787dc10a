//! Filters an archive of a sandbox's files that a client unpacks with its own program: git directories,
//! symbolic links and set-uid bits are removed.

use isle_wire::Carried;

use crate::git::{GitDirs, SkippedGitDirs, is_git_name, is_head, is_head_name};
use crate::skipped_comments::{comments, learn};
use crate::tar::{Entry, EntryKind, Reader, Sink, TarError, end, padding, write_comments, write_header};

/// Why a git directory is skipped.
pub const GIT_DIRECTORY: &str = "it is a git directory, whose files can make git run programs";

/// Bytes of a `HEAD` file that are checked; git reads no more to recognize a repository.
const HEAD_READ: usize = 512;

/// Filters one archive.
#[derive(Debug)]
pub struct TreeFilter {
    reader: Reader,
    passed: Passed,
}

#[derive(Debug)]
struct Passed {
    git_dirs: GitDirs,
    out: Vec<u8>,
    /// Size of the current file.
    size: u64,
    state: State,
    git: SkippedGitDirs,
    carried: Carried,
}

#[derive(Debug)]
enum State {
    PassingOn,
    LeavingOut,
    /// A file named `HEAD`, not checked yet.
    Reading(Entry, Vec<u8>),
}

impl TreeFilter {
    /// A filter with limits on entries and bytes.
    #[must_use]
    pub fn new(entries: u64, bytes: u64, git_dirs: GitDirs) -> Self {
        let passed = Passed {
            git_dirs,
            out: Vec::new(),
            size: 0,
            state: State::PassingOn,
            git: SkippedGitDirs::default(),
            carried: Carried::default(),
        };
        Self { reader: Reader::new(entries, bytes), passed }
    }

    /// Takes bytes of the archive and returns the filtered ones.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>, TarError> {
        self.reader.feed(bytes, &mut self.passed)?;
        Ok(std::mem::take(&mut self.passed.out))
    }

    /// The archive has ended; returns the last bytes, which list what was skipped.
    pub fn finish(self) -> Result<Vec<u8>, TarError> {
        self.reader.finish()?;
        let Passed { mut out, git, mut carried, .. } = self.passed;
        let mut left_out = Carried::default();
        for path in &git.named {
            left_out.skip(path, GIT_DIRECTORY);
        }
        left_out.skipped_count = git.count;
        learn(&mut carried, self.reader.comments());
        left_out.skipped.append(&mut carried.skipped);
        left_out.skipped_count += carried.skipped_count;
        if left_out.skipped_count > 0 {
            write_comments(&mut out, &comments(&left_out));
        }
        end(&mut out);
        Ok(out)
    }
}

impl Passed {
    fn header(&mut self, entry: &Entry) {
        self.size = if let EntryKind::File(size) = entry.kind { size } else { 0 };
        self.state = State::PassingOn;
        write_header(
            &mut self.out,
            &entry.parts.join(&b'/'),
            &entry.kind,
            entry.mode & 0o777,
            entry.modified,
        );
    }

    /// Decides about a `HEAD` file.
    fn decide(&mut self, entry: &Entry, contents: &[u8]) {
        if is_head(contents) {
            self.git.add(&entry.parts.join(&b'/'));
            self.state = State::LeavingOut;
        } else {
            self.header(entry);
            self.out.extend_from_slice(contents);
        }
    }
}

impl Sink for Passed {
    type Error = TarError;

    fn begin(&mut self, entry: Entry) -> Result<(), TarError> {
        let skips = self.git_dirs == GitDirs::Skip;
        if skips && let Some(at) = entry.parts.iter().position(|part| is_git_name(part)) {
            self.git.add(&entry.parts[..=at].join(&b'/'));
            self.state = State::LeavingOut;
            return Ok(());
        }
        match &entry.kind {
            EntryKind::Symlink(_) => {
                self.carried.skip(&entry.parts.join(&b'/'), "it is a symbolic link");
                self.state = State::LeavingOut;
            }
            EntryKind::File(_) if skips && entry.parts.last().is_some_and(|name| is_head_name(name)) => {
                self.state = State::Reading(entry, Vec::new());
            }
            EntryKind::Directory if entry.parts.is_empty() => self.state = State::LeavingOut,
            EntryKind::File(_) | EntryKind::Directory => self.header(&entry),
        }
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), TarError> {
        match &mut self.state {
            State::PassingOn => self.out.extend_from_slice(bytes),
            State::LeavingOut => {}
            State::Reading(_, contents) => {
                contents.extend_from_slice(bytes);
                if contents.len() >= HEAD_READ
                    && let State::Reading(entry, contents) =
                        std::mem::replace(&mut self.state, State::PassingOn)
                {
                    self.decide(&entry, &contents);
                }
            }
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), TarError> {
        self.state = match std::mem::replace(&mut self.state, State::PassingOn) {
            State::Reading(entry, contents) => {
                self.decide(&entry, &contents);
                std::mem::replace(&mut self.state, State::PassingOn)
            }
            known => known,
        };
        if matches!(self.state, State::PassingOn) {
            padding(&mut self.out, self.size);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "archive_filter_tests.rs"]
mod tests;
