//! Report of a transfer out of a sandbox: skipped git directories, files to review, repositories that commits
//! were fetched into.

use clap::ValueEnum;
use isle_trees::git::{FetchedRepository, GitDirs, RefOutcome, SkippedGitDirs};
use isle_trees::{Review, Reviewed, UnpackedTree};
use serde_json::{Value, json};

use crate::output::{escaped, print_stderr};

/// Maximum number of refs printed per repository.
const MAX_REFS: usize = 20;

/// Maximum number of files to review printed per reason.
const MAX_PER_REASON: usize = 3;

/// Value of `--git-dirs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum GitDirsOption {
    #[default]
    Skip,
    Copy,
}

impl From<GitDirsOption> for GitDirs {
    fn from(option: GitDirsOption) -> Self {
        match option {
            GitDirsOption::Skip => Self::Skip,
            GitDirsOption::Copy => Self::Copy,
        }
    }
}

/// The report.
#[derive(Debug, Default)]
pub(super) struct TransferReport {
    pub(super) git: Vec<String>,
    pub(super) git_count: u64,
    pub(super) review: Review,
    pub(super) repositories: Vec<(String, FetchedRepository)>,
}

const REMEDY: &str = "use `isle sync pull --git` to fetch its commits, or `--git-dirs copy` to copy it with hooks and configuration from a trusted sandbox";

fn shown(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { String::from_utf8_lossy(path).into_owned() }
}

impl TransferReport {
    pub(super) fn add(&mut self, arrived: &UnpackedTree) {
        self.add_git(&arrived.git);
        self.add_review(&arrived.review);
    }

    pub(super) fn add_git(&mut self, git: &SkippedGitDirs) {
        self.git.extend(git.named.iter().map(|path| shown(path)));
        self.git_count += git.count;
    }

    pub(super) fn add_review(&mut self, review: &Review) {
        self.review.merge(review);
    }

    /// Adds the report to the JSON output.
    pub(super) fn add_to_json(&self, answer: &mut Value) {
        if !self.git.is_empty() {
            let one = |path: &String| json!({ "path": path, "reason": "git_directory", "remedy": REMEDY });
            answer["git_directories"] = self.git.iter().map(one).collect();
            if self.git_unnamed() > 0 {
                answer["git_directories_count"] = json!(self.git_count);
            }
        }
        if self.review.count() > 0 {
            let one = |one: Reviewed| json!({ "path": shown(&one.path), "why": one.why });
            answer["review"] = self.review.named().map(one).collect();
            answer["review_count"] = json!(self.review.count());
            let more: Vec<Value> =
                self.review.unnamed().map(|(why, count)| json!({ "why": why, "count": count })).collect();
            if !more.is_empty() {
                answer["review_more"] = more.into();
            }
        }
        if !self.repositories.is_empty() {
            let refs = |fetched: &FetchedRepository| -> Value {
                let one = |one: &isle_trees::git::FetchedRef| {
                    let mut value = json!({ "name": one.name, "outcome": outcome(one.outcome) });
                    if let Some(found_at) = &one.found_at {
                        value["found_at"] = json!(found_at);
                    }
                    value
                };
                fetched.refs.iter().map(one).collect()
            };
            let one = |(path, fetched): &(String, FetchedRepository)| json!({ "path": path, "created": fetched.created, "refs": refs(fetched) });
            answer["repositories"] = self.repositories.iter().map(one).collect();
        }
    }

    /// Number of skipped git directories that are not listed.
    fn git_unnamed(&self) -> u64 {
        self.git_count.saturating_sub(self.git.len() as u64)
    }

    /// Prints the report on standard error.
    pub(super) fn print(&self) {
        for path in &self.git {
            print_stderr(&format!("skipped {}: git directory; {REMEDY}", escaped(path)));
        }
        if self.git_unnamed() > 0 {
            print_stderr(&format!("skipped {} more git directories", self.git_unnamed()));
        }
        for (path, fetched) in &self.repositories {
            let repository = if fetched.created { "new repository" } else { "repository" };
            let count = |wanted: RefOutcome| fetched.refs.iter().filter(|one| one.outcome == wanted).count();
            print_stderr(&format!(
                "fetched commits into {repository} {}: {} created, {} fast-forwarded, {} unchanged",
                escaped(path),
                count(RefOutcome::Created),
                count(RefOutcome::FastForwarded),
                count(RefOutcome::UpToDate)
            ));
            for one in fetched.refs.iter().take(MAX_REFS) {
                match (one.outcome, &one.found_at) {
                    (RefOutcome::Kept, Some(found_at)) => {
                        print_stderr(&format!(
                            "kept {}; the sandbox's version is {}",
                            escaped(&one.name),
                            escaped(found_at)
                        ));
                    }
                    (RefOutcome::Refused, _) => {
                        print_stderr(&format!("skipped ref {}: invalid name", escaped(&one.name)));
                    }
                    _ => {}
                }
            }
        }
        for one in self.review.first(MAX_PER_REASON) {
            print_stderr(&format!("review {}: {}", escaped(&shown(&one.path)), one.why));
        }
        for (why, more) in self.review.besides(MAX_PER_REASON) {
            print_stderr(&format!("review {more} more: {why}"));
        }
    }
}

fn outcome(outcome: RefOutcome) -> &'static str {
    match outcome {
        RefOutcome::Created => "created",
        RefOutcome::FastForwarded => "fast_forwarded",
        RefOutcome::UpToDate => "up_to_date",
        RefOutcome::Kept => "kept",
        RefOutcome::Refused => "refused",
    }
}
