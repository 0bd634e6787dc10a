//! Fetching commits and refs of a sandbox into a repository of the host. The repository's settings, hooks and
//! attributes are not changed; a missing repository is created by the host's git as its user would. Branches
//! are only fast-forwarded; other refs are stored under `refs/isle/SANDBOX/`.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::bundle::{Bundled, BundledRef, GitError, Header, is_plain_ref, read_header};
use super::program::{Settings, git, succeed};
use crate::directories::remove_tree;
use crate::unpack::StagingDir;
use crate::walk::Kind;

/// The result for one ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefOutcome {
    /// The host had no ref of that name.
    Created,
    /// The host's ref was fast-forwarded.
    FastForwarded,
    /// Both were equal.
    UpToDate,
    /// The host's ref has other commits, is checked out elsewhere, or is another tag: it is not changed.
    Kept,
    /// Its name was rejected.
    Refused,
}

/// One branch or tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedRef {
    /// Such as `heads/main` or `tags/v1`.
    pub name: String,
    /// The result.
    pub outcome: RefOutcome,
    /// Where the sandbox's ref is stored on the host, if it was kept separately.
    pub found_at: Option<String>,
}

/// The result of a fetch into a repository of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchedRepository {
    /// Whether it was created.
    pub created: bool,
    /// Every branch and tag of the sandbox.
    pub refs: Vec<FetchedRef>,
}

/// A bundle of a sandbox, stored next to the repository it is for. Removed on drop.
#[derive(Debug)]
pub struct BundleFile {
    directory: OwnedFd,
    draft: StagingDir,
    file: std::fs::File,
    left: u64,
}

impl BundleFile {
    /// Creates one with a size limit in an open directory of the host.
    pub fn new(directory: OwnedFd, most: u64) -> io::Result<Self> {
        let draft = StagingDir::new(directory.try_clone()?)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(draft.directory()?.as_fd(), "bundle", flags, Mode::from_raw_mode(0o600))?;
        Ok(Self { directory, draft, file: file.into(), left: most })
    }

    /// The next bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), GitError> {
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or(GitError::Bundle("it is larger than the sandbox's disk"))?;
        Ok(io::Write::write_all(&mut self.file, bytes)?)
    }

    /// Fetches it into the repository of its directory.
    pub fn fetch(self, bundled: &Bundled, sandbox: &str) -> Result<FetchedRepository, GitError> {
        let path = format!("./{}/bundle", String::from_utf8_lossy(self.draft.name()));
        let header = if bundled.is_empty {
            None
        } else {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(self.draft.directory()?.as_fd(), "bundle", flags, Mode::empty());
            Some(read_header(file.map_err(io::Error::from)?.into())?)
        };
        fetch(self.directory.as_fd(), (&path, header), bundled, sandbox)
    }
}

fn fetch(
    directory: BorrowedFd<'_>,
    (bundle, header): (&str, Option<Header>),
    bundled: &Bundled,
    sandbox: &str,
) -> Result<FetchedRepository, GitError> {
    let created = match crate::directories::look(directory, b".git")? {
        None => true,
        Some(Kind::Directory | Kind::File) => false,
        Some(Kind::Symlink) => return Err(GitError::Standing("a symbolic link, which is not followed")),
        Some(Kind::Other) => return Err(GitError::Standing("neither a file nor a directory")),
    };
    if created {
        let format = if header.as_ref().is_some_and(|header| header.sha256) { "sha256" } else { "sha1" };
        let format = format!("--object-format={format}");
        let branch = bundled.branch.as_ref().map(|branch| format!("--initial-branch={branch}"));
        let mut arguments = vec!["init", "--quiet", format.as_str()];
        arguments.extend(branch.as_deref());
        succeed(directory, Settings::OfUser, &arguments, "")?;
    }
    let mut fetched = FetchedRepository { created, refs: Vec::new() };
    let Some(header) = header else { return Ok(fetched) };
    let repository = Repository { directory, space: space(sandbox) };
    let outcome = repository.fetch(bundle, &header.refs).and_then(|()| {
        if created { repository.fill(&header.refs, bundled) } else { repository.advance(&header.refs) }
    });
    match outcome {
        Ok(refs) => fetched.refs = refs,
        Err(error) => {
            if created {
                // An incomplete repository is removed again.
                remove_tree(directory, b".git").ok();
            }
            return Err(error);
        }
    }
    let refused = |name: String| FetchedRef { name, outcome: RefOutcome::Refused, found_at: None };
    fetched.refs.extend(header.refused.into_iter().map(refused));
    Ok(fetched)
}

/// The ref namespace of a sandbox.
fn space(sandbox: &str) -> String {
    let name: String = sandbox
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' })
        .collect();
    let name = name.trim_matches('-');
    let name = if is_plain_ref(name) { name } else { "sandbox" };
    format!("refs/isle/{name}")
}

struct Repository<'a> {
    directory: BorrowedFd<'a>,
    space: String,
}

impl Repository<'_> {
    fn succeed(&self, arguments: &[&str], stdin: &str) -> Result<String, GitError> {
        succeed(self.directory, Settings::Repository, arguments, stdin)
    }

    fn holds(&self, arguments: &[&str]) -> Result<bool, GitError> {
        Ok(git(self.directory, Settings::Repository, arguments, "")?.success)
    }

    /// Fetches all objects, each checked by git, and all refs into the sandbox's namespace.
    fn fetch(&self, bundle: &str, refs: &[BundledRef]) -> Result<(), GitError> {
        let old =
            self.succeed(&["for-each-ref", "--format=delete %(refname)", &format!("{}/", self.space)], "")?;
        self.succeed(&["update-ref", "--stdin"], &old)?;
        let source = |name: &str| if name == "HEAD" { name.to_owned() } else { format!("refs/{name}") };
        let lines: String =
            refs.iter().map(|one| format!("+{}:{}/{}\n", source(&one.name), self.space, one.name)).collect();
        let arguments = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-auto-gc",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--stdin",
            bundle,
        ];
        self.succeed(&arguments, &lines).map(drop)
    }

    /// The refs of the host by their names without `refs/`.
    fn standing(&self) -> Result<BTreeMap<String, String>, GitError> {
        let listed = self
            .succeed(&["for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags"], "")?;
        let split = |line: &str| {
            let (id, name) = line.split_once(' ')?;
            Some((name.strip_prefix("refs/")?.to_owned(), id.to_owned()))
        };
        Ok(listed.lines().filter_map(split).collect())
    }

    /// Fills a new repository with all refs, and an index that matches its branch.
    fn fill(&self, refs: &[BundledRef], bundled: &Bundled) -> Result<Vec<FetchedRef>, GitError> {
        let outcomes = self.create(refs, &BTreeMap::new())?;
        let head = refs.iter().find(|one| one.name == "HEAD");
        match (&bundled.branch, head) {
            (Some(branch), _) => {
                self.succeed(&["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")], "")?
            }
            (None, Some(head)) => self.succeed(&["update-ref", "--no-deref", "HEAD", &head.id], "")?,
            (None, None) => String::new(),
        };
        if self.holds(&["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])? {
            self.succeed(&["read-tree", "HEAD"], "")?;
        }
        Ok(outcomes)
    }

    /// Updates an existing repository without discarding its own commits.
    fn advance(&self, refs: &[BundledRef]) -> Result<Vec<FetchedRef>, GitError> {
        let standing = self.standing()?;
        let current =
            git(self.directory, Settings::Repository, &["symbolic-ref", "--quiet", "HEAD"], "")?.stdout;
        let current = current.trim().strip_prefix("refs/").unwrap_or_default().to_owned();
        let elsewhere = self.checked_out_elsewhere(&current)?;
        let mut outcomes = self.create(refs, &standing)?;
        for one in refs {
            let Some(old) = standing.get(&one.name) else { continue };
            let outcome = if *old == one.id {
                RefOutcome::UpToDate
            } else if one.name.starts_with("tags/") || elsewhere.contains(&one.name) {
                RefOutcome::Kept
            } else if self.holds(&["merge-base", "--is-ancestor", old, &one.id])?
                && self.forward(one, old, one.name == current)?
            {
                RefOutcome::FastForwarded
            } else {
                RefOutcome::Kept
            };
            outcomes.push(self.outcome(one, outcome));
        }
        Ok(outcomes)
    }

    /// Fast-forwards a branch. If it is checked out, the index is updated, too; with conflicting staged
    /// changes nothing is changed.
    fn forward(&self, one: &BundledRef, old: &str, is_current: bool) -> Result<bool, GitError> {
        if is_current && !self.holds(&["read-tree", "-i", "-m", old, &one.id])? {
            return Ok(false);
        }
        self.holds(&["update-ref", &format!("refs/{}", one.name), &one.id, old])
    }

    /// Branches that other working trees of this repository have checked out.
    fn checked_out_elsewhere(&self, current: &str) -> Result<Vec<String>, GitError> {
        let listed = self.succeed(&["worktree", "list", "--porcelain"], "")?;
        let branches = listed.lines().filter_map(|line| line.strip_prefix("branch refs/"));
        Ok(branches.filter(|branch| *branch != current).map(str::to_owned).collect())
    }

    /// Creates missing refs; one that cannot be created does not prevent the others.
    fn create(
        &self,
        refs: &[BundledRef],
        standing: &BTreeMap<String, String>,
    ) -> Result<Vec<FetchedRef>, GitError> {
        let new: Vec<&BundledRef> =
            refs.iter().filter(|one| one.name != "HEAD" && !standing.contains_key(&one.name)).collect();
        let line = |one: &BundledRef| format!("create refs/{} {}\n", one.name, one.id);
        let all: String = new.iter().map(|one| line(one)).collect();
        if git(self.directory, Settings::Repository, &["update-ref", "--stdin"], &all)?.success {
            return Ok(new.iter().map(|one| self.outcome(one, RefOutcome::Created)).collect());
        }
        let mut outcomes = Vec::new();
        for one in new {
            let made =
                git(self.directory, Settings::Repository, &["update-ref", "--stdin"], &line(one))?.success;
            outcomes.push(self.outcome(one, if made { RefOutcome::Created } else { RefOutcome::Kept }));
        }
        Ok(outcomes)
    }

    fn outcome(&self, one: &BundledRef, outcome: RefOutcome) -> FetchedRef {
        let found_at = (outcome == RefOutcome::Kept).then(|| format!("{}/{}", self.space, one.name));
        FetchedRef { name: one.name.clone(), outcome, found_at }
    }
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
