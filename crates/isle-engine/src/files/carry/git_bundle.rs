//! Commits of a sandbox's repository into one of the host: git in the sandbox packs them, and the host's
//! own git fetches the pack. Nothing else of the sandbox's git directory leaves it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures::StreamExt;
use isle_trees::git::{
    BUNDLE_SCRIPT, BundleFile, Bundled, FetchedRef, FetchedRepository, GitError, RefOutcome,
};
use isle_wire::GuestUser;

use crate::context::CallContext;
use crate::run::{AnswerOptions, Plan, Program, RunKind, Runs, named_target};
use crate::sandbox::Sandbox;
use isle_api::ops::mirror::{OutcomeShape, RefShape, RepositoryShape};
use isle_api::shapes::RunState;
use isle_core::values::{GuestPath, SandboxName, Span};
use isle_core::{Code, Error, Result};

/// How long git in the sandbox may pack one repository: what it reads is the sandbox's own, pipes and
/// programs that never end among it.
const PACKING: Span = Span::seconds(10 * 60);

/// How long its end is waited for.
const PACKED: Span = Span::seconds(11 * 60);

fn ref_shape(fetched: FetchedRef) -> RefShape {
    let outcome = match fetched.outcome {
        RefOutcome::Created => OutcomeShape::Created,
        RefOutcome::FastForwarded => OutcomeShape::FastForwarded,
        RefOutcome::UpToDate => OutcomeShape::UpToDate,
        RefOutcome::Kept => OutcomeShape::Kept,
        RefOutcome::Refused => OutcomeShape::Refused,
    };
    RefShape { name: fetched.name, outcome, found_at: fetched.found_at }
}

/// What became of a repository of the host, as it is answered.
pub(super) fn repository_shape(path: &[u8], fetched: FetchedRepository) -> RepositoryShape {
    let path = if path.is_empty() { ".".to_owned() } else { String::from_utf8_lossy(path).into_owned() };
    let refs = fetched.refs.into_iter().map(ref_shape).collect();
    RepositoryShape { path, created: fetched.created, refs }
}

/// Fetches from the repository in a directory of a sandbox into one of the host.
pub(crate) async fn fetch(
    runs: &Arc<Runs>,
    context: &CallContext,
    (name, sandbox): (&SandboxName, &Sandbox),
    (from, user): (&GuestPath, GuestUser),
    to: OwnedFd,
) -> Result<FetchedRepository> {
    let mut random = [0u8; 8];
    getrandom::fill(&mut random).map_err(Error::internal)?;
    let file = format!(".git/isle-{:016x}.bundle", u64::from_ne_bytes(random));
    let packed = pack(runs, context, name, from, user, &file).await;
    let path: GuestPath = format!("{}/{file}", from.absolute()).parse()?;
    let disk = sandbox.spec.limits.disk.0;
    let fetched = async {
        let bundled = packed?;
        let mut bundle = BundleFile::new(to, disk).map_err(|error| git_error(&error.into()))?;
        if !bundled.is_empty {
            let (_, mut body) = sandbox.agent()?.read_file(&path, user, 0, None).await?;
            while let Some(piece) = body.next().await {
                bundle.write(&piece?).map_err(|error| git_error(&error))?;
            }
        }
        let name = name.to_string();
        let fetching = tokio::task::spawn_blocking(move || bundle.fetch(&bundled, &name));
        fetching.await.map_err(Error::internal)?.map_err(|error| git_error(&error))
    }
    .await;
    // It may never have been made.
    sandbox.agent()?.remove(&path, user, false).await.ok();
    fetched
}

async fn pack(
    runs: &Arc<Runs>,
    context: &CallContext,
    name: &SandboxName,
    from: &GuestPath,
    user: GuestUser,
    file: &str,
) -> Result<Bundled> {
    let words = ["sh", "-c", BUNDLE_SCRIPT, "isle-bundle", &from.absolute(), file];
    let place = named_target(Some(name.clone()));
    let program = Program::Argv(words.map(str::to_owned).to_vec());
    let plan = Plan {
        env: vec![("LC_ALL".into(), "C".into())],
        user,
        timeout: Some(PACKING.min(runs.longest_timeout())),
        ..Plan::new(RunKind::Exec, place, program)
    };
    let options = AnswerOptions { wait: Some(PACKED), ..AnswerOptions::default() };
    let run = runs.answer(context, plan, options).await?;
    if run.state == RunState::TimedOut {
        return Err(git_error(&GitError::PackingTooLong));
    }
    if run.state != RunState::Completed {
        let said: String = run.stderr.trim().chars().take(1000).collect();
        return Err(git_error(&GitError::Packing(said)));
    }
    Bundled::read(&run.stdout).map_err(|error| git_error(&error))
}

/// What a failure means to the caller.
fn git_error(error: &GitError) -> Error {
    let next = match error {
        GitError::NoGitInside => "install git in the sandbox, or pull without git",
        GitError::NoGitHere(_) => "install git on this host, or pull without git",
        GitError::Packing(_) | GitError::PackingTooLong => {
            "see what `git fsck` says in the sandbox, or pull without git"
        }
        GitError::Standing(_) => "move it away, or pull to another directory",
        GitError::Bundle(_) | GitError::Failed(_) | GitError::TimedOut(_) | GitError::Io(_) => {
            "the files were pulled; see what `git fsck` says in the sandbox, or pull without git"
        }
    };
    Error::new(Code::GitFailed, error.to_string()).next(next)
}
